//! The ops of the interface as expressions of tensors, which a tensor library computes.
//!
//! A library implements [`Tensors`]; the crate depends on none.

pub mod attention;
mod memory;
mod tensors;

pub use memory::Memory;
pub use tensors::{Binary, Compare, Reduce, Split, Tensors, Threads, Unary};
