//! A config and a rank -> its open device.

use std::sync::Arc;

use espalier_config::Config;
use espalier_interface::{Device, DeviceInfo};
use espalier_registry::select::Components;
use espalier_system::failure::UsageError;

use crate::Error;

/// Opens the device of rank number `rank` of this machine: the config's devices in turn, else the
/// backend's.
pub(crate) fn open_device(
    config: &Config,
    components: &Components,
    rank: usize,
) -> Result<(Arc<dyn Device>, DeviceInfo), Error> {
    let backend = &components.backend;
    let devices = backend
        .plugin
        .devices()
        .map_err(|error| backend.failed("devices", error))?;
    let mut named = config.run.devices.iter().cycle();
    let index = match named.nth(rank) {
        None => rank % devices.len().max(1),
        Some(wanted) => devices
            .iter()
            .position(|device| &device.name == wanted)
            .ok_or_else(|| {
                Error::Usage(UsageError {
                    message: format!(
                        "backend `{}` has no device `{wanted}`: it has {}",
                        backend.identity.component,
                        devices
                            .iter()
                            .map(|d| d.name.as_str())
                            .collect::<Vec<_>>()
                            .join(", ")
                    ),
                    next_step: "see `host doctor`".to_owned(),
                })
            })?,
    };
    let info = devices.get(index).cloned().ok_or_else(|| {
        Error::Usage(UsageError {
            message: format!("backend `{}` has no device", backend.identity.component),
            next_step: "see `host doctor`".to_owned(),
        })
    })?;
    let device = backend
        .plugin
        .open(index as u32)
        .map_err(|error| backend.failed("open", error))?;
    Ok((Arc::from(device), info))
}
