//! Config and registry -> one component a role, made with its options.

use std::path::PathBuf;
use std::sync::Arc;

use espalier_interface::adaptation::{Site, SiteKind};
use espalier_interface::{
    Adapter, Backend, Family, PluginError, Quantizer, Role, Services, Sharding,
};
use serde_json::Value as Json;

use crate::Error;
use crate::config::{Config, Section};
use crate::files::AdapterDirectory;
use crate::registry::{PluginIdentity, Registry};

/// A component that was made, and where it came from.
pub struct Chosen<T: ?Sized> {
    /// The component.
    pub plugin: Arc<T>,
    /// Its plugin, version and file.
    pub identity: PluginIdentity,
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

/// The quantizer of a `[[sites]]` rule.
struct RuleQuantizer {
    rule: usize,
    quantizer: Option<Chosen<dyn Quantizer>>,
}

/// The components of a run.
pub struct Components {
    /// Model family.
    pub family: Chosen<dyn Family>,
    /// Adapter; none trains the model itself.
    pub adapter: Option<Chosen<dyn Adapter>>,
    /// The adapter to start from.
    pub saved_adapter: Option<AdapterDirectory>,
    /// Quantizer of linears that no rule names; none keeps them dense.
    pub quantizer: Option<Chosen<dyn Quantizer>>,
    /// Sharding strategy.
    pub sharding: Chosen<dyn Sharding>,
    /// Compute backend.
    pub backend: Chosen<dyn Backend>,
    rules: Vec<RuleQuantizer>,
}

/// Makes the components that `config` names, and the defaults of the roles it leaves out.
///
/// # Errors
/// An unknown name, two components of one role, an option that is not known or not allowed.
pub fn select(
    config: &Config,
    model_config: &Json,
    registry: &Registry,
    services: &'static dyn Services,
) -> Result<Components, Error> {
    let roles = registry.roles_of(&config.plugins)?;
    let named = |role: Role| roles.get(&role).map(String::as_str);
    let empty = Section::new();
    let options = |role: &str, name: &str| config.section(role, name).unwrap_or(&empty).clone();

    let family = match named(Role::FAMILY) {
        Some(name) => name.to_owned(),
        None => registry.family_for(model_type(model_config)?)?,
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

    let make_quantizer = |name: &str, options: &Section| -> Result<_, Error> {
        let (plugin, identity) = registry.create_quantizer(name, options, services)?;
        Ok(Chosen {
            plugin: Arc::<dyn Quantizer>::from(plugin),
            identity,
        })
    };
    let default = named(Role::QUANTIZER);
    let quantizer = default
        .map(|name| make_quantizer(name, &options("quantizer", name)))
        .transpose()?;
    let mut rules = Vec::with_capacity(config.sites.len());
    for (rule, site) in config.sites.iter().enumerate() {
        let name = match site.quantizer.as_deref() {
            Some("none") => None,
            Some(name) => Some(name),
            None => default,
        };
        let quantizer = match name {
            None => None,
            Some(name) => {
                let mut merged = options("quantizer", name);
                merged.extend(site.options.clone());
                Some(make_quantizer(name, &merged)?)
            }
        };
        rules.push(RuleQuantizer { rule, quantizer });
    }

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
        quantizer,
        sharding,
        backend,
        rules,
    })
}

impl Components {
    /// The quantizer of a site: the last rule that matches, else the run's own for the linears of layers.
    pub fn quantizer_of(&self, config: &Config, site: &Site) -> Option<&Chosen<dyn Quantizer>> {
        let rule = self
            .rules
            .iter()
            .rev()
            .find(|one| config.sites[one.rule].matches(&site.name));
        match rule {
            Some(rule) => rule.quantizer.as_ref(),
            None if site.kind == SiteKind::Linear => self.quantizer.as_ref(),
            None => None,
        }
    }

    /// Where every component came from, for `run.json`.
    pub fn identities(&self) -> Vec<&PluginIdentity> {
        let quantizers = self.rules.iter().filter_map(|one| one.quantizer.as_ref());
        let mut all = vec![&self.family.identity];
        all.extend(
            self.quantizer
                .iter()
                .chain(quantizers)
                .map(|chosen| &chosen.identity),
        );
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
