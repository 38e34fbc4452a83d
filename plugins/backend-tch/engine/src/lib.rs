//! The engine of the backend `tch`: the ops of the interface by libtorch.
//!
//! The plugin holds this library and opens it after libtorch: see the crate `espalier-backend-tch`.

mod error;
mod threads;
mod torch;

pub use torch::Torch;
