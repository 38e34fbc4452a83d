//! The ops of the interface as expressions of tensors, which a tensor library computes.
//!
//! A library implements [`Tensors`]; the crate depends on none. [`TensorKernels`] makes a backend's
//! kernels of it. All ops are there, forward and backward, in f32 and bf16; arithmetic is in f32,
//! and a result is rounded once.

mod kernels;
mod launch;
mod memory;
mod op;
mod tensors;
mod weight;

pub use kernels::TensorKernels;
pub use memory::Memory;
pub use tensors::attention;
pub use tensors::{Binary, Compare, Reduce, Split, Tensors, Threads, Unary};
