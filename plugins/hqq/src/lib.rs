//! Half-quadratic quantization: weights -> `hqq` segments, code for code as the hqq library makes
//! them.
//!
//! [`grouping`] defines which weights share a scale and a zero, [`start`] computes both from the
//! ends of a group, [`solve`] moves the zeros. [`pack`] writes the codes and [`meta`] the numbers
//! of the groups.

mod code;
mod component;
mod encode;
mod grouping;
mod meta;
mod pack;
mod problem;
mod profile;
mod quantizer;
mod saved;
mod shrink;
mod solve;
mod start;

pub use component::HQQ;

espalier_interface::declare_plugin! { name: "hqq", components: &[HQQ] }
