//! Loops over all numbers of a weight or of a token's logits that the host runs itself.
//!
//! They have a crate of their own because it is compiled for speed (`Cargo.toml` of the workspace),
//! which the crates that call them need not be.

mod convert;
mod difference;
mod divergence;
mod dot;
mod drawn;
mod finite;
mod likeliest;
mod torch_uniform;
mod transpose;
mod weight_error;

pub use convert::{numbers, widen, write_numbers};
pub use difference::difference;
pub use divergence::TokenDivergence;
pub use dot::dot;
pub use drawn::Drawn;
pub use finite::{first_beyond, first_not_finite, first_not_finite_element};
pub use likeliest::likeliest;
pub use torch_uniform::torch_uniform;
pub use transpose::{Rows, transpose};
pub use weight_error::ErrorSums;
