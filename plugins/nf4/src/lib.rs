//! bitsandbytes' block-wise quantizers: weights -> `nf4`, `fp4` and `int8` segments, bit for bit.

pub mod codebook;
pub mod dynamic_map;
pub mod eight_bit;
pub mod four_bit;
mod mean;
pub mod nested;
pub mod span;
