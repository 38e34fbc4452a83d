//! bitsandbytes' block-wise quantizers: weights -> `nf4`, `fp4` and `int8` segments, bit for bit.

mod codebook;
mod component;
mod dynamic_map;
mod eight_bit;
mod eight_bit_quantizer;
mod four_bit;
mod four_bit_encode;
mod four_bit_quantizer;
mod mean;
mod nested;
mod saved;
mod shape;
mod span;

pub use component::{FP4, INT8, NF4};

espalier_interface::declare_plugin! { name: "nf4", components: &[NF4, FP4, INT8] }
