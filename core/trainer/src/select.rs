//! Config and registry -> one component a role, made with its options.

mod packed_checkpoint;
mod quantizers;

use std::path::PathBuf;
use std::sync::Arc;

use espalier_interface::adaptation::Site;
use espalier_interface::{
    Adapter, Backend, Family, PluginError, Quantizer, Role, Services, Sharding,
};
use serde_json::Value as Json;

use crate::Error;
use crate::config::{Config, Init, Section};
use crate::files::{AdapterDirectory, ModelDirectory};
use crate::registry::{PluginIdentity, Registry, RegistryError};

pub use packed_checkpoint::{PackedCheckpoint, Packing, read_object};
pub use quantizers::Quantizers;

/// A component that was made, and where it came from.
pub struct Chosen<T: ?Sized> {
    /// The component.
    pub plugin: Arc<T>,
    /// Its plugin, version and file.
    pub identity: PluginIdentity,
}

impl<T: ?Sized> Clone for Chosen<T> {
    fn clone(&self) -> Self {
        Chosen {
            plugin: Arc::clone(&self.plugin),
            identity: self.identity.clone(),
        }
    }
}

impl<T: ?Sized> Chosen<T> {
    /// The error for a call to this component that failed.
    pub fn failed(&self, callback: &str, source: PluginError) -> Error {
        Error::Plugin {
            plugin: self.identity.component.clone(),
            callback: callback.to_owned(),
            file: self.identity.file.clone(),
            source,
        }
    }
}

impl Chosen<dyn Quantizer> {
    /// The quantizer `name` with the options that the user or a checkpoint gives.
    ///
    /// # Errors
    /// As [`Registry::create_quantizer`].
    pub fn quantizer(
        registry: &Registry,
        name: &str,
        options: &Section,
        services: &'static dyn Services,
    ) -> Result<Self, RegistryError> {
        let (plugin, identity) = registry.create_quantizer(name, options, services)?;
        Ok(Chosen {
            plugin: Arc::from(plugin),
            identity,
        })
    }
}

/// The components of a run.
pub struct Components {
    /// Model family.
    pub family: Chosen<dyn Family>,
    /// Adapter; none trains the model itself.
    pub adapter: Option<Chosen<dyn Adapter>>,
    /// The adapter to start from.
    pub saved_adapter: Option<AdapterDirectory>,
    /// Quantizers by site.
    pub quantizers: Quantizers,
    /// Sharding strategy.
    pub sharding: Chosen<dyn Sharding>,
    /// Compute backend.
    pub backend: Chosen<dyn Backend>,
}

/// Makes the components that `config` names, and the defaults of the roles it leaves out.
///
/// # Errors
/// An unknown name, two components of one role, an option that is not known or not allowed.
pub fn select(
    config: &Config,
    directory: &ModelDirectory,
    registry: &Registry,
    services: &'static dyn Services,
) -> Result<Components, Error> {
    let roles = registry.roles_of(&config.plugins)?;
    let named = |role: Role| roles.get(&role).map(String::as_str);
    let empty = Section::new();
    let options = |role: &str, name: &str| config.section(role, name).unwrap_or(&empty).clone();

    let family = match named(Role::FAMILY) {
        Some(name) => name.to_owned(),
        None => registry.family_for(model_type(directory.config())?)?,
    };
    let (plugin, identity) = registry.create_family(&family, &empty, services)?;
    let family = Chosen {
        plugin: Arc::from(plugin),
        identity,
    };

    let saved_adapter = match &config.model.adapter {
        Some(path) => Some(AdapterDirectory::open(path)?),
        None => None,
    };
    let adapter_name = match (named(Role::ADAPTER), &saved_adapter) {
        (Some(name), _) => Some(name.to_owned()),
        (None, Some(saved)) => Some(registry.adapter_for(peft_type(saved)?)?),
        (None, None) => None,
    };
    let adapter = match adapter_name {
        None => None,
        Some(name) => {
            let given = options("adapter", &name);
            let options = match &saved_adapter {
                None => given,
                Some(saved) => {
                    // Any instance can read a saved config; its own options do not matter.
                    let (reader, identity) = registry.create_adapter(&name, &empty, services)?;
                    let reader = Chosen {
                        plugin: Arc::<dyn Adapter>::from(reader),
                        identity,
                    };
                    let read = reader.plugin.options_from_saved(saved.config());
                    let read = read.map_err(|e| reader.failed("options_from_saved", e))?;
                    let mut options = given;
                    options.extend(read.0);
                    options
                }
            };
            let (plugin, identity) = registry.create_adapter(&name, &options, services)?;
            Some(Chosen {
                plugin: Arc::from(plugin),
                identity,
            })
        }
    };

    let packed = match config.model.init {
        Init::Checkpoint => PackedCheckpoint::open(directory, registry, services)?,
        Init::Random => None,
    };
    let default = named(Role::QUANTIZER);
    let quantizers = Quantizers::select(config, default, packed, registry, services)?;

    let sharding = named(Role::SHARDING).unwrap_or("single");
    let (plugin, identity) =
        registry.create_sharding(sharding, &options("sharding", sharding), services)?;
    let sharding = Chosen {
        plugin: Arc::from(plugin),
        identity,
    };
    let backend = config
        .run
        .backend
        .as_deref()
        .or(named(Role::BACKEND))
        .unwrap_or("cpu");
    let (plugin, identity) =
        registry.create_backend(backend, &options("backend", backend), services)?;
    let backend = Chosen {
        plugin: Arc::from(plugin),
        identity,
    };
    Ok(Components {
        family,
        adapter,
        saved_adapter,
        quantizers,
        sharding,
        backend,
    })
}

impl Components {
    /// The quantizer of a site, as [`Quantizers::of`] gives it.
    ///
    /// # Errors
    /// One that the checkpoint is not packed by.
    pub fn quantizer_of(
        &self,
        config: &Config,
        site: &Site,
    ) -> Result<Option<&Chosen<dyn Quantizer>>, Error> {
        self.quantizers.of(config, site)
    }

    /// Where every component came from, for `run.json`.
    pub fn identities(&self) -> Vec<&PluginIdentity> {
        let mut all = vec![&self.family.identity];
        all.extend(self.quantizers.identities());
        all.extend(self.adapter.iter().map(|chosen| &chosen.identity));
        all.push(&self.sharding.identity);
        all.push(&self.backend.identity);
        let mut seen: Vec<&PluginIdentity> = Vec::new();
        for identity in all {
            if !seen.iter().any(|one| one.component == identity.component) {
                seen.push(identity);
            }
        }
        seen
    }
}

fn model_type(config: &Json) -> Result<&str, Error> {
    config
        .get("model_type")
        .and_then(Json::as_str)
        .ok_or_else(|| Error::Checkpoint {
            path: PathBuf::from("config.json"),
            message: "expected a text `model_type`, found none".to_owned(),
        })
}

fn peft_type(saved: &AdapterDirectory) -> Result<&str, Error> {
    saved
        .config()
        .get("peft_type")
        .and_then(Json::as_str)
        .ok_or_else(|| Error::Checkpoint {
            path: saved.path().join("adapter_config.json"),
            message: "expected a text `peft_type`, found none".to_owned(),
        })
}
