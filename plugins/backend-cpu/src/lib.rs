//! The compute backend `cpu`: this machine's processors and memory, as the backend role.
//!
//! Buffers are mappings, kernels are the functions of `espalier-kernels`, and a launch is done when
//! it returns. In f64 it is the reference that other backends are compared with.

mod backend;
mod call;
mod device;
mod dispatch;
mod machine;
mod mapped_file;
mod memory;
mod op;
#[cfg(feature = "plugin")]
mod plugin;
mod request;
#[cfg(test)]
mod rig;

pub use backend::CpuBackend;
