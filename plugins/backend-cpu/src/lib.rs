//! The compute backend `cpu`: this machine's processors and memory, as the backend role.
//!
//! Buffers are mappings, kernels are the functions of `espalier-kernels`, and a launch is done when
//! it returns. In f64 it is the reference that other backends are compared with.

mod backend;
mod dispatch;
mod machine;
mod op;
#[cfg(feature = "plugin")]
mod plugin;
#[cfg(test)]
mod rig;

pub use backend::CpuBackend;
