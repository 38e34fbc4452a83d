//! The compute backend `cpu`: this machine's processors and memory behind the backend role.
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
mod request;
#[cfg(test)]
mod rig;

use espalier_interface::{Component, Instance, OptionKind, OptionSpec, Role};

pub use backend::CpuBackend;

const CPU: Component = Component {
    name: "cpu",
    role: Role::BACKEND,
    doc: "this machine's processors; computes in bf16, f32 or f64 (the reference mode)",
    options: &[
        OptionSpec {
            name: "mapped_dir",
            kind: OptionKind::TEXT,
            default: "null",
            range: "",
            doc: "folder on a disk for weights that memory has no room for; unset: TMPDIR, else /var/tmp",
        },
        OptionSpec {
            name: "device_memory",
            kind: OptionKind::TEXT,
            default: "null",
            range: "",
            doc: "bounds what each device holds, such as 64MiB, as if it were a card; unset: all of the machine's",
        },
    ],
    capabilities: &[("compute", "bf16,f32,f64")],
    create: |options, services| {
        let backend = CpuBackend::new(services).with(options)?;
        Ok(Instance::Backend(Box::new(backend)))
    },
};

espalier_interface::declare_plugin! { name: "cpu", components: &[CPU] }
