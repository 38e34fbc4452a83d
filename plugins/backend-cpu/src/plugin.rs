//! The declaration of the plugin `cpu`: its options -> a [`CpuBackend`].

use espalier_host_device::HostOptions;
use espalier_interface::{Component, Instance, OptionKind, OptionSpec, Role};

use crate::CpuBackend;

const CPU: Component = Component {
    name: "cpu",
    role: Role::BACKEND,
    doc: "this machine's processors; computes in bf16, f32 or f64 (the reference mode)",
    options: &[
        HostOptions::MAPPED_DIR,
        HostOptions::DEVICE_MEMORY,
        OptionSpec {
            name: "isa",
            kind: OptionKind::TEXT,
            default: "null",
            range: "avx512+amx-bf16, avx512+bf16, avx512, avx2, portable",
            doc: "instruction set of products, of those that this processor has; unset: the fastest",
        },
    ],
    capabilities: &[("compute", "bf16,f32,f64")],
    create: |options, services| {
        let backend = CpuBackend::new(services).with(options)?;
        Ok(Instance::Backend(Box::new(backend)))
    },
};

espalier_interface::declare_plugin! { name: "cpu", components: &[CPU] }
