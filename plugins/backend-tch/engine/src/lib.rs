//! The engine of the backend `tch`: the ops of the interface by libtorch.
//!
//! The plugin holds this library and opens it after libtorch: see the crate `espalier-backend-tch`.

mod allocator;
mod attention;
mod backend;
mod cuda;
mod error;
mod instructions;
mod kinds;
mod plugin;
#[cfg(test)]
mod tests;
mod threads;
mod torch;

pub use backend::TchBackend;
pub use torch::{Shared, Torch};

/// The version of libtorch that this is linked with.
pub const VERSION: &str = "2.13.0";
