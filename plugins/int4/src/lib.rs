//! Uniform codes of 4, 3 or 2 bits: a scale and a whole zero point for each group of a row.
//!
//! [`grouping`] says which weights share a scale and a zero, [`grid`] chooses both, [`nearest`]
//! rounds a whole weight to them, [`store`] writes codes and numbers into the segments of the
//! format ([`layout`]), and
//! [`saved`] has the files of GPTQ and AWQ.

mod component;
mod files;
mod grid;
mod grouping;
mod layout;
mod nearest;
mod number;
mod packing;
mod quantizer;
mod saved;
mod store;

pub use component::INT4;

espalier_interface::declare_plugin! { name: "int4", components: &[INT4] }
