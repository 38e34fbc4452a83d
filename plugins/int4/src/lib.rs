//! Uniform codes of 4, 3 or 2 bits: a scale and a whole zero point for each group of a row.
//!
//! [`grouping`] says which weights share a scale and a zero, [`grid`] chooses both. A weight is
//! rounded to them ([`nearest`]), or coded with statistics of its inputs ([`gptq`], [`clip`]).
//! [`store`] writes codes and numbers into the segments of the format ([`layout`]), and [`saved`]
//! has the files of GPTQ and AWQ.

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
mod packing;
mod quantizer;
mod saved;
mod store;

pub use component::{GPTQ, INT4, INT4_CLIP};

espalier_interface::declare_plugin! { name: "int4", components: &[INT4, GPTQ, INT4_CLIP] }
