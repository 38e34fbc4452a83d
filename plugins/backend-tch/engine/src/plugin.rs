//! The declaration of the engine, which the plugin `backend-tch` opens and no host.

use espalier_host_device::HostOptions;
use espalier_interface::{Component, Instance, Role};

use crate::TchBackend;
use crate::backend::DEVICE;

const TCH: Component = Component {
    name: "tch",
    role: Role::BACKEND,
    doc: "the engine of the plugin `backend-tch`",
    options: &[DEVICE, HostOptions::MAPPED_DIR, HostOptions::DEVICE_MEMORY],
    capabilities: &[],
    create: |options, services| {
        let backend = TchBackend::new(options, services)?;
        Ok(Instance::Backend(Box::new(backend)))
    },
};

espalier_interface::declare_plugin! { name: "tch-engine", components: &[TCH] }
