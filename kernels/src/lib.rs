//! Slices in, slices out: the arithmetic of every op on a CPU, without buffers, devices or graphs.
//!
//! Shapes: `T` tokens, `D` model width, `F` feed-forward width, `H` heads, `K` head width, `V`
//! vocab, `R` lora rank. Activations are `[T, D]` without padding. All work is split by shape alone
//! and every element is accumulated in a fixed order, so results are bit-identical for any number
//! of threads. Slices whose lengths disagree are a caller's mistake and panic; data that a user can
//! cause (a token outside the vocabulary) is an error in words.
#![deny(missing_docs)]

pub mod adamw;
pub mod adamw8bit;
pub mod added;
pub mod arithmetic;
pub mod attention;
pub mod bias;
pub mod cascade;
pub mod cast;
mod columns;
pub mod cross_entropy;
pub mod decode;
pub mod dropout;
pub mod element;
pub mod elementwise;
pub mod embedding;
pub mod expand;
pub mod fill;
pub mod gelu;
pub mod lanes;
pub mod layer_norm;
pub mod linear;
pub mod matmul;
pub mod nearest;
pub mod ordered_sum;
pub mod param_value;
pub mod reduce;
pub mod rms_norm;
pub mod rope;
mod rounded;
pub mod row_norms;
pub mod rows;
pub mod scale_channels;
pub mod sgd;
pub mod simd;
pub mod sinusoids;
pub mod slice_columns;
pub mod split;
pub mod stochastic;
pub mod swiglu;

#[cfg(test)]
mod check;
// Pages of 4096 bytes, which other processors may not have.
#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod guard_pages;
