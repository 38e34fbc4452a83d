//! The declaration of the plugin `candle`: its options -> a [`CandleBackend`].

use espalier_host_device::HostOptions;
use espalier_interface::{Component, Instance, Role};

use crate::CandleBackend;

const CANDLE: Component = Component {
    name: "candle",
    role: Role::BACKEND,
    doc: "this machine's processors by candle-core; computes in bf16 or f32",
    options: &[HostOptions::MAPPED_DIR, HostOptions::DEVICE_MEMORY],
    capabilities: &[("compute", "bf16,f32")],
    create: |options, services| {
        let backend = CandleBackend::new(services, HostOptions::default().with(options)?);
        Ok(Instance::Backend(Box::new(backend)))
    },
};

espalier_interface::declare_plugin! { name: "candle", components: &[CANDLE] }
