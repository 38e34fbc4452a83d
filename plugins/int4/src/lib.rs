//! Uniform codes of 4, 3 or 2 bits: a scale and a whole zero point for each group of a row.
//!
//! [`grouping`] says which weights share a scale and a zero, [`grid`] chooses both. A weight is
//! rounded to them ([`nearest`]), or coded with statistics of its inputs ([`gptq`], [`clip`], and
//! [`awq`], which adds a factor for each column). [`store`] writes codes and numbers into the
//! segments of the format ([`layout`]). [`saved`] has the files of GPTQ and AWQ, [`awq_saved`] our
//! own with factors.

mod awq;
mod awq_packing;
mod awq_quantizer;
mod awq_saved;
mod calibrated_quantizer;
mod cholesky;
mod clip;
mod component;
mod files;
mod gptq;
mod grid;
mod grouping;
mod layout;
mod nearest;
mod number;
mod output_error;
mod packing;
mod quantizer;
mod saved;
mod store;

pub use component::{AWQ, GPTQ, INT4, INT4_CLIP};

espalier_interface::declare_plugin! { name: "int4", components: &[INT4, GPTQ, INT4_CLIP, AWQ] }
