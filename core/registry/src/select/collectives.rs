//! Config and world -> the collectives that join its ranks.

use espalier_config::Config;
use espalier_interface::{Collective, Members, Role, Services};
use espalier_system::failure::UsageError;
use espalier_system::world::World;

use super::Selection;
use crate::Error;
use crate::chosen::Chosen;
use crate::defaults::Defaults;
use crate::registry::{PluginIdentity, Registry, RegistryError};

/// The collectives of a world; none where there is nothing to join.
#[derive(Clone, Default)]
pub struct Collectives {
    /// Joins the threads of a process.
    pub threads: Option<Chosen<dyn Collective>>,
    /// Joins processes.
    pub processes: Option<Chosen<dyn Collective>>,
    /// Joins devices: its calls are put on their streams.
    pub devices: Option<DeviceCollective>,
}

/// A collective on the memory of devices.
#[derive(Clone)]
pub struct DeviceCollective {
    /// The collective.
    pub collective: Chosen<dyn Collective>,
    /// Name of the backend whose devices it joins.
    pub backend: String,
    /// Bytes that each group takes on a device.
    pub group_bytes: u64,
}

impl Collectives {
    /// The collective that the config names, and those that `world` needs beside it.
    ///
    /// # Errors
    /// [`Error::Registry`] for an unknown name, unusable options and a missing library.
    /// [`Error::Usage`] where nothing joins the processes.
    pub fn select(
        config: &Config,
        world: &World,
        registry: &Registry,
        services: &'static dyn Services,
    ) -> Result<Self, Error> {
        let selection = Selection::new(config, registry, services)?;
        let mut chosen = Collectives::default();
        if let Some(name) = selection.named(Role::COLLECTIVE) {
            let collective = selection.collective(name)?;
            let info = collective.plugin.describe();
            let info = info.map_err(|error| collective.failed("describe", error))?;
            if !info.memory.iter().any(|memory| memory == HOST) {
                return Err(not_on_the_host(name));
            }
            match info.members {
                Members::Threads => chosen.threads = Some(collective),
                Members::Processes => chosen.processes = Some(collective),
            }
        }
        if world.ranks_per_process() > 1 && chosen.threads.is_none() {
            chosen.threads = Some(selection.collective(Defaults::of_program()?.threads)?);
        }
        if world.processes > 1 && chosen.processes.is_none() {
            let name = Defaults::of_program()?.processes;
            let made = selection.collective(name);
            chosen.processes = Some(made.map_err(|error| missing(name, world, error))?);
        }
        if let Some(name) = selection.device_collective()?.filter(|_| world.ranks > 1) {
            chosen.devices = Some(selection.on_devices(&name)?);
        }
        Ok(chosen)
    }

    /// The bytes of each group of the devices; `None` where no collective joins them.
    pub fn device_group_bytes(&self) -> Option<u64> {
        Some(self.devices.as_ref()?.group_bytes)
    }

    /// Where they came from.
    pub fn identities(&self) -> impl Iterator<Item = &PluginIdentity> {
        let devices = self.devices.iter().map(|devices| &devices.collective);
        let all = self.threads.iter().chain(&self.processes).chain(devices);
        all.map(|chosen| &chosen.identity)
    }
}

/// The memory that a collective of the host takes, in [`espalier_interface::CollectiveInfo`].
const HOST: &str = "host";

impl Selection<'_> {
    /// The collective of devices that `run.device_collective` or a plugin names.
    fn device_collective(&self) -> Result<Option<String>, Error> {
        let named = self.registry.device_collective(&self.config.plugins)?;
        match (&self.config.run.device_collective, named) {
            (Some(set), Some(named)) if *set != named => Err(Error::Usage(UsageError {
                message: format!(
                    "run.device_collective = {set:?}, and the plugins name another collective of devices, `{named}`"
                ),
                next_step: "name one of them".to_owned(),
            })),
            (set, named) => Ok(set.clone().or(named)),
        }
    }

    /// The collective `name` for the devices of the config's backend.
    fn on_devices(&self, name: &str) -> Result<DeviceCollective, Error> {
        let backend = match &self.config.run.backend {
            Some(backend) => backend.clone(),
            None => Defaults::of_program()?.backend.to_owned(),
        };
        let collective = self.collective(name)?;
        let info = collective.plugin.describe();
        let info = info.map_err(|error| collective.failed("describe", error))?;
        if !info.memory.contains(&backend) {
            let taken = info.memory.join(", ");
            return Err(Error::Usage(UsageError {
                message: format!(
                    "run.device_collective = {name:?} takes memory of {taken}, and the backend is `{backend}`"
                ),
                next_step: "name a collective for that backend, or leave run.device_collective out"
                    .to_owned(),
            }));
        }
        let group_bytes = collective.plugin.device_bytes();
        let group_bytes = group_bytes.map_err(|error| collective.failed("device_bytes", error))?;
        Ok(DeviceCollective {
            collective,
            backend,
            group_bytes,
        })
    }

    fn collective(&self, name: &str) -> Result<Chosen<dyn Collective>, Error> {
        let options = self.options(Role::COLLECTIVE, name);
        let made = self
            .registry
            .create_collective(name, &options, self.services)?;
        Ok(Chosen::of(made))
    }
}

/// The error for a collective of devices in the place of one of the host.
fn not_on_the_host(name: &str) -> Error {
    Error::Usage(UsageError {
        message: format!("the collective `{name}` takes no memory of the host"),
        next_step: format!(
            "set run.device_collective = {name:?} in place of naming it as a plugin"
        ),
    })
}

/// The error for a world of processes without a collective for processes.
fn missing(name: &str, world: &World, error: Error) -> Error {
    match error {
        Error::Registry(RegistryError::UnknownComponent { searched, .. }) => {
            Error::Usage(UsageError {
                message: format!(
                    "{} processes were started: expected a collective that joins processes, found none; `{name}` was \
                 searched for in {}",
                    world.processes,
                    searched.join(", ")
                ),
                next_step: format!(
                    "build plugins/collective-{name} and name its folder with --plugin-dir; or start one process, with \
                 `--ranks {}`",
                    world.ranks
                ),
            })
        }
        other => other,
    }
}
