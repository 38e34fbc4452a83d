//! Slices in, slices out: the arithmetic of every op on a CPU, without buffers, devices or graphs.
//!
//! Shapes: `T` tokens, `D` model width, `F` feed-forward width, `H` heads, `K` head width, `V` vocab, `R` lora rank.
//! All work is split by shape alone and every element is accumulated in a fixed order, so results
//! are bit-identical for any number of threads.

pub mod attention;
pub mod decode;
pub mod element;
pub mod linear;
pub mod matmul;
pub mod simd;
pub mod split;
