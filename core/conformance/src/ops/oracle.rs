//! Each op's maths as one plain loop in f64, from the formulas of `docs/write-a-backend.md`.
//!
//! They know nothing of kernels, tiles, lanes or threads. Golden values of torch are compared with
//! them. Legend: `T` tokens, `D` width, `F` feed-forward width, `H` heads, `J` key/value heads, `K`
//! head width, `S` sequences, `V` vocabulary, `N x M` a weight `[out, in]`. All arrays are row
//! major. `T` follows from the lengths.

mod arithmetic;
mod attention;
mod columns;
mod cross_entropy;
mod embedding;
mod expand;
mod flat;
mod gelu;
mod indexed;
mod layer_norm;
mod linear;
mod matmul;
mod norm;
mod random;
mod rope;
mod sinusoids;
mod swiglu;

pub use arithmetic::*;
pub use attention::*;
pub use columns::*;
pub use cross_entropy::*;
pub use embedding::*;
pub use expand::*;
pub use flat::*;
pub use gelu::*;
pub use indexed::*;
pub use layer_norm::*;
pub use linear::*;
pub use matmul::*;
pub use norm::*;
pub use random::*;
pub use rope::*;
pub use sinusoids::*;
pub use swiglu::*;
