//! Config and registry -> one component per role, made with its options.

mod adapter_options;
mod collectives;
mod packed_checkpoint;
mod quantizers;
mod replacement;
mod saved_description;

use std::collections::BTreeMap;
use std::path::PathBuf;

use espalier_config::{Config, Init, ResolvedConfig, Section};
use espalier_interface::adaptation::Site;
use espalier_interface::{
    Adapter, Backend, ErrorCode, Family, Quantizer, Role, Services, Sharding,
};
use espalier_system::files::{AdapterDirectory, ModelDirectory, WeightsError};
use serde_json::Value as Json;

use crate::Error;
use crate::chosen::Chosen;
use crate::defaults::Defaults;
use crate::registry::{PluginIdentity, Registry};

pub use adapter_options::refuse_others as refuse_other_adapter_options;
pub use collectives::{Collectives, DeviceCollective};
pub use packed_checkpoint::{PackedCheckpoint, PackedWith};
pub use quantizers::Quantizers;
pub use replacement::Replacement;
pub use saved_description::{read_constant, read_object};

/// An adapter, and all options that it was made with.
type AdapterAndOptions = (Chosen<dyn Adapter>, Section);

/// The components of a run.
pub struct Components {
    /// Model family.
    pub family: Chosen<dyn Family>,
    /// Adapter; none where the model itself is trained.
    pub adapter: Option<Chosen<dyn Adapter>>,
    /// All options of the adapter as the run begins, defaults among them.
    pub adapter_options: Option<Section>,
    /// The adapter to start from.
    pub saved_adapter: Option<AdapterDirectory>,
    /// Quantizers by site.
    pub quantizers: Quantizers,
    /// Sharding strategy.
    pub sharding: Chosen<dyn Sharding>,
    /// Compute backend.
    pub backend: Chosen<dyn Backend>,
    /// The threads that they were made with.
    pub services: &'static dyn Services,
}

/// Makes the components that the config names, and the defaults of the roles it leaves out.
///
/// # Errors
/// [`Error::Registry`] for an unknown name, two components of one role, and an unusable option.
pub fn select(
    resolved: &ResolvedConfig,
    directory: &ModelDirectory,
    registry: &Registry,
    services: &'static dyn Services,
) -> Result<Components, Error> {
    let config = resolved.config();
    let selection = Selection::new(config, registry, services)?;
    let family = selection.family(directory)?;
    let saved_adapter = match &config.model.adapter {
        Some(path) => Some(AdapterDirectory::open(path)?),
        None => None,
    };
    let with_options = saved_adapter.as_ref();
    let with_options = with_options.filter(|_| !resolved.has_own_adapter_options());
    let (adapter, adapter_options) = selection.adapter(with_options)?.unzip();
    let packed = match config.model.init {
        Init::Checkpoint => PackedCheckpoint::open(directory, registry, services)?,
        Init::Random => None,
    };
    Ok(Components {
        family,
        adapter,
        adapter_options,
        saved_adapter,
        quantizers: selection.quantizers(packed)?,
        sharding: selection.sharding()?,
        backend: selection.backend()?,
        services,
    })
}

/// The compute backend that `config` names, on the threads of `services`.
///
/// # Errors
/// As [`select`].
pub fn backend(
    config: &Config,
    registry: &Registry,
    services: &'static dyn Services,
) -> Result<Chosen<dyn Backend>, Error> {
    Selection::new(config, registry, services)?.backend()
}

/// The config and the chosen component of each role.
pub struct Selection<'a> {
    config: &'a Config,
    roles: BTreeMap<Role, String>,
    registry: &'a Registry,
    services: &'static dyn Services,
}

impl<'a> Selection<'a> {
    /// The choice that `config` makes among the components of `registry`.
    ///
    /// # Errors
    /// [`Error::Registry`] for an unknown name, and for two components of one role.
    pub fn new(
        config: &'a Config,
        registry: &'a Registry,
        services: &'static dyn Services,
    ) -> Result<Self, Error> {
        Ok(Selection {
            config,
            roles: registry.roles_of(&config.plugins)?,
            registry,
            services,
        })
    }

    fn named(&self, role: Role) -> Option<&str> {
        self.roles.get(&role).map(String::as_str)
    }

    fn options(&self, role: Role, name: &str) -> Section {
        let given = self.config.section(role.0, name);
        given.cloned().unwrap_or_default()
    }

    fn family(&self, directory: &ModelDirectory) -> Result<Chosen<dyn Family>, Error> {
        let name = match self.named(Role::FAMILY) {
            Some(name) => name.to_owned(),
            None => self.registry.family_for(model_type(directory.config())?)?,
        };
        let made = self
            .registry
            .create_family(&name, &Section::new(), self.services)?;
        Ok(Chosen::of(made))
    }

    /// The adapter, and all options that it was made with; those of a `saved` one take precedence
    /// over the config's.
    ///
    /// # Errors
    /// [`Error::Registry`] for an unknown name or an unusable option.
    pub fn adapter(
        &self,
        saved: Option<&AdapterDirectory>,
    ) -> Result<Option<AdapterAndOptions>, Error> {
        let names = match (self.named(Role::ADAPTER), saved) {
            (Some(name), _) => vec![name.to_owned()],
            (None, Some(saved)) => self.registry.adapters_for(peft_type(saved)?)?,
            (None, None) => return Ok(None),
        };
        let (name, read) = match saved {
            Some(saved) => self.first_reader(names, saved)?,
            None => (names[0].clone(), Section::new()),
        };
        let mut options = self.options(Role::ADAPTER, &name);
        options.extend(read);
        let made = self
            .registry
            .create_adapter(&name, &options, self.services)?;
        let options = self.registry.all_options(Role::ADAPTER, &name, &options)?;
        Ok(Some((Chosen::of(made), options)))
    }

    /// The first of the adapters `names` that does not refuse a saved adapter as something else,
    /// and the options that it reads.
    ///
    /// # Errors
    /// The first error of another kind. The first refusal, where all refuse.
    fn first_reader(
        &self,
        names: Vec<String>,
        saved: &AdapterDirectory,
    ) -> Result<(String, Section), Error> {
        let mut refused = None;
        for name in names {
            // Any instance can read a saved config; its own options do not matter.
            let reader = self
                .registry
                .create_adapter(&name, &Section::new(), self.services)?;
            match saved_options(&Chosen::of(reader), saved) {
                Ok(read) => return Ok((name, read)),
                Err(Error::Plugin(failure)) if failure.source.code == ErrorCode::UNSUPPORTED => {
                    refused = refused.or(Some(failure));
                }
                Err(other) => return Err(other),
            }
        }
        Err(Error::Plugin(refused.expect("a component was named")))
    }

    /// The quantizers; `packed` is how the checkpoint's weights are packed already.
    ///
    /// # Errors
    /// [`Error::Registry`] for an unknown name or an unusable option.
    pub fn quantizers(&self, packed: Option<PackedCheckpoint>) -> Result<Quantizers, Error> {
        let default = self.named(Role::QUANTIZER);
        Quantizers::select(self.config, default, packed, self.registry, self.services)
    }

    /// The sharding strategy.
    ///
    /// # Errors
    /// [`Error::Registry`] for an unknown name or an unusable option.
    pub fn sharding(&self) -> Result<Chosen<dyn Sharding>, Error> {
        let name = match self.named(Role::SHARDING) {
            Some(name) => name,
            None => Defaults::of_program()?.sharding,
        };
        let options = self.options(Role::SHARDING, name);
        Ok(Chosen::sharding(
            self.registry,
            name,
            &options,
            self.services,
        )?)
    }

    /// The compute backend.
    ///
    /// # Errors
    /// [`Error::Registry`] for an unknown name or an unusable option.
    pub fn backend(&self) -> Result<Chosen<dyn Backend>, Error> {
        let given = self.config.run.backend.as_deref();
        let name = match given.or(self.named(Role::BACKEND)) {
            Some(name) => name,
            None => Defaults::of_program()?.backend,
        };
        let options = self.options(Role::BACKEND, name);
        let made = self
            .registry
            .create_backend(name, &options, self.services)?;
        Ok(Chosen::of(made))
    }
}

/// The options that a saved adapter was made with, as `adapter` reads them.
pub fn saved_options(
    adapter: &Chosen<dyn Adapter>,
    saved: &AdapterDirectory,
) -> Result<Section, Error> {
    let read = adapter.plugin.options_from_saved(saved.config());
    let read = read.map_err(|error| match error.code {
        // The file is at fault, not the plugin that reads it.
        ErrorCode::INVALID => Error::Weights(WeightsError {
            path: saved.path().to_owned(),
            message: error.message,
        }),
        _ => adapter.failed("options_from_saved", error),
    })?;
    Ok(read.0)
}

impl Components {
    /// The quantizer of a site, as [`Quantizers::of`] gives it.
    ///
    /// # Errors
    /// [`Error::Usage`] for another quantizer than the checkpoint's.
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
        .ok_or_else(|| {
            Error::Weights(WeightsError {
                path: PathBuf::from("config.json"),
                message: "expected a text `model_type`, found none".to_owned(),
            })
        })
}

fn peft_type(saved: &AdapterDirectory) -> Result<&str, Error> {
    saved
        .config()
        .get("peft_type")
        .and_then(Json::as_str)
        .ok_or_else(|| {
            Error::Weights(WeightsError {
                path: saved.path().join("adapter_config.json"),
                message: "expected a text `peft_type`, found none".to_owned(),
            })
        })
}
