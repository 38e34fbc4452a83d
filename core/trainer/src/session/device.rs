//! A config and the ranks of a process -> the open device of each.

use std::sync::Arc;

use espalier_config::Config;
use espalier_interface::{Backend, Device, DeviceInfo};
use espalier_registry::select;
use espalier_registry::{Chosen, Registry};
use espalier_system::failure::UsageError;
use espalier_system::threads::HostServices;
use espalier_system::world::World;

use crate::Error;

/// An open device and its description.
pub(crate) type OpenDevice = (Arc<dyn Device>, DeviceInfo);

/// The inputs for opening the devices of a process's ranks.
pub(crate) struct DevicesOfRanks<'a> {
    pub config: &'a Config,
    pub registry: &'a Registry,
    pub services: &'static HostServices,
}

impl DevicesOfRanks<'_> {
    /// The device of each rank of this process. Each of several ranks computes on its share of the
    /// threads: `backend` is then that of the last one.
    ///
    /// # Errors
    /// Too few threads, a failure of the backend, a device that it does not have.
    pub fn open(
        &self,
        world: World,
        backend: &mut Chosen<dyn Backend>,
    ) -> Result<Vec<OpenDevice>, Error> {
        let ranks = world.ranks_per_process() as usize;
        let first = world.own_ranks().start % world.ranks_per_machine();
        let mut devices = Vec::with_capacity(ranks);
        for rank in 0..ranks {
            if ranks > 1 {
                let share = self.services.share(ranks)?;
                *backend = select::backend(self.config, self.registry, share)?;
            }
            devices.push(open_device(self.config, backend, first as usize + rank)?);
        }
        Ok(devices)
    }
}

/// Opens the device of rank number `rank` of this machine: the config's devices in turn, else the
/// backend's.
fn open_device(
    config: &Config,
    backend: &Chosen<dyn Backend>,
    rank: usize,
) -> Result<OpenDevice, Error> {
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
