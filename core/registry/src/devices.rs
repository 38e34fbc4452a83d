//! Every available backend -> the devices that it finds on this machine, and whether the first one
//! computes.

pub mod sample;

use espalier_compile::decompose::{BackendOps, Lacking};
use espalier_config::{Config, Section};
use espalier_interface::{DeviceInfo, Role, Services};
use sample::Heard;

use crate::Error;
use crate::registry::{Registry, Status};

/// A backend and what it finds.
#[derive(Debug)]
pub struct BackendDevices {
    /// The backend's name.
    pub backend: String,
    /// Its devices, or why it cannot be used: a driver or a library that is missing.
    pub devices: Result<Vec<DeviceInfo>, Error>,
    /// The ops that it lacks; all or none where it does not say.
    pub lacking: Lacking,
    /// What it logs of a [`sample`] product on its first device, or why that failed.
    pub logged: Result<Vec<String>, Error>,
}

/// Asks every available backend of `registry`, with its options from `config`.
pub fn devices(
    config: &Config,
    registry: &Registry,
    services: &'static dyn Services,
) -> Vec<BackendDevices> {
    let mut found = Vec::new();
    for listing in registry.list() {
        if listing.role != Role::BACKEND.0 || listing.status != Status::Available {
            continue;
        }
        let name = listing.component;
        let none = Section::new();
        let options = config.section(Role::BACKEND.0, &name).unwrap_or(&none);
        let mut lacking = Lacking::default();
        let mut computed = Ok(());
        let heard = Heard::over(services);
        let devices = registry
            .create_backend(&name, options, heard)
            .map_err(Error::from)
            .and_then(|(backend, identity)| {
                let listed = backend.ops();
                let listed = listed.map_err(|error| identity.failed("ops", error))?;
                lacking = Lacking::of(&BackendOps::new(&name, listed));
                let devices = backend.devices();
                let devices = devices.map_err(|error| identity.failed("devices", error))?;
                if !devices.is_empty() {
                    let multiplied = sample::multiply(&*backend);
                    computed =
                        multiplied.map_err(|error| Error::from(identity.failed("product", error)));
                }
                Ok(devices)
            });
        let logged = computed.map(|()| heard.take());
        found.push(BackendDevices {
            backend: name,
            devices,
            lacking,
            logged,
        });
    }
    found
}
