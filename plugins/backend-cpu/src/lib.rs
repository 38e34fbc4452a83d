//! The compute backend `cpu`: this machine's processors and memory behind the backend role.
//!
//! Buffers are anonymous mappings, kernels are the functions of `espalier-kernels`, and a launch is done when it
//! returns. In f64 it is the reference that other backends are checked against.

mod backend;
mod call;
mod device;
mod dispatch;
mod machine;
mod memory;
mod op;
mod request;
#[cfg(test)]
mod rig;

use espalier_interface::{Component, Instance, Role};

pub use backend::CpuBackend;

const CPU: Component = Component {
    name: "cpu",
    role: Role::BACKEND,
    doc: "this machine's processors; computes in bf16, f32 or f64 (the reference mode)",
    options: &[],
    capabilities: &[("compute", "bf16,f32,f64")],
    create: |_, services| Ok(Instance::Backend(Box::new(CpuBackend::new(services)))),
};

espalier_interface::declare_plugin! { name: "cpu", components: &[CPU] }
