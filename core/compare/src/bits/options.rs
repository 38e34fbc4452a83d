//! `nf4,hqq:bits=3,none` -> the quantizer options that every site chooses among.

use espalier_config::{Config, Section, SiteRule};
use espalier_interface::{DType, Quantizer, Role, Services};
use espalier_registry::{Chosen, Registry};
use espalier_system::failure::UsageError;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::arms::options_after_colons;

/// Name of the option that keeps a weight dense.
pub const NONE: &str = "none";

/// Most options, so that a choice is a byte.
const MOST: usize = 64;

/// An option as the table keeps it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OptionRecord {
    /// As it was written: `hqq:bits=3`.
    pub name: String,
    /// The quantizer; `None` keeps the weight dense.
    pub quantizer: Option<String>,
    /// The options given, those of the config's section among them.
    pub given: Section,
    /// All options, defaults among them.
    pub all: Section,
    /// Version of the quantizer's plugin.
    pub version: Option<String>,
    /// Hash of its library; `None` for a linked plugin.
    pub sha256: Option<String>,
}

impl OptionRecord {
    /// The `[[sites]]` rule that gives it to the sites of `pattern`.
    pub(super) fn rule(&self, pattern: String) -> SiteRule {
        SiteRule {
            pattern,
            quantizer: Some(self.quantizer.clone().unwrap_or_else(|| NONE.to_owned())),
            options: self.given.clone(),
        }
    }

    /// Whether it packs as `other` does, under whatever name.
    fn equals(&self, other: &Self) -> bool {
        self.quantizer == other.quantizer && self.all == other.all
    }
}

/// An option with its quantizer, ready to encode.
pub(super) struct BitOption {
    pub record: OptionRecord,
    /// None keeps the weight dense.
    pub quantizer: Option<Chosen<dyn Quantizer>>,
}

/// Makes the quantizers of `items`.
///
/// # Errors
/// [`Error::Usage`] for no option, too many, a component that is no quantizer, and two equal ones;
/// errors of the registry.
pub(super) fn options(
    items: &[String],
    config: &Config,
    registry: &Registry,
    services: &'static dyn Services,
) -> Result<Vec<BitOption>, Error> {
    if items.is_empty() || items.len() > MOST {
        return Err(Error::Usage(UsageError {
            message: format!(
                "--options: expected 1 to {MOST} options, found {}",
                items.len()
            ),
            next_step: "name them as --options nf4,hqq:bits=3,none".to_owned(),
        }));
    }
    let mut made: Vec<BitOption> = Vec::new();
    for item in items {
        let option = option(item, config, registry, services)?;
        if let Some(same) = made.iter().find(|one| one.record.equals(&option.record)) {
            return Err(Error::Usage(UsageError {
                message: format!(
                    "--options: `{}` and `{item}` are the same",
                    same.record.name
                ),
                next_step: "leave one out".to_owned(),
            }));
        }
        made.push(option);
    }
    Ok(made)
}

fn option(
    item: &str,
    config: &Config,
    registry: &Registry,
    services: &'static dyn Services,
) -> Result<BitOption, Error> {
    if item == NONE {
        let name = item.to_owned();
        return Ok(BitOption {
            record: OptionRecord {
                name,
                ..OptionRecord::default()
            },
            quantizer: None,
        });
    }
    let component = item.split(':').next().unwrap_or_default();
    let roles = registry.roles_of(&[component])?;
    if !roles.contains_key(&Role::QUANTIZER) {
        let role = roles.keys().next().map_or("component", |role| role.0);
        return Err(Error::Usage(UsageError {
            message: format!("--options: `{component}` is of role {role}, expected a quantizer"),
            next_step: "`host plugins list` shows the quantizers; `none` keeps weights dense"
                .to_owned(),
        }));
    }
    let mut given = config
        .section(Role::QUANTIZER.0, component)
        .cloned()
        .unwrap_or_default();
    given.extend(options_after_colons("option", item)?);
    let quantizer = Chosen::quantizer(registry, component, &given, services)
        .map_err(espalier_registry::Error::from)?;
    let all = registry.all_options(Role::QUANTIZER, component, &given);
    let identity = &quantizer.identity;
    let record = OptionRecord {
        name: item.to_owned(),
        quantizer: Some(component.to_owned()),
        given,
        all: all.map_err(espalier_registry::Error::from)?,
        version: Some(identity.version.clone()),
        sha256: identity.sha256.clone(),
    };
    Ok(BitOption {
        record,
        quantizer: Some(quantizer),
    })
}

/// Refuses options whose choice `host quantize` cannot write: those of several quantizers, and
/// those without a form on disk for a weight of `shape`.
///
/// # Errors
/// [`Error::Usage`] with the quantizers; the quantizer's own refusal.
pub(super) fn check_writable(options: &[BitOption], shape: [u64; 2]) -> Result<(), Error> {
    let quantizers = || {
        options
            .iter()
            .filter_map(|option| option.quantizer.as_ref())
    };
    let name = |chosen: &Chosen<dyn Quantizer>| chosen.identity.component.clone();
    let Some(first) = quantizers().next().map(name) else {
        return Ok(());
    };
    if let Some(other) = quantizers().map(name).find(|other| *other != first) {
        return Err(Error::Usage(UsageError {
            message: format!(
                "--out: a checkpoint is packed by one quantizer, --options names `{first}` and \
                 `{other}`"
            ),
            next_step: "let --options name one, or leave --out out and train with --config: the \
                        weights are then packed as they are loaded"
                .to_owned(),
        }));
    }
    for chosen in quantizers() {
        let form = chosen.plugin.saved_form(shape, DType::F32);
        form.map_err(|error| chosen.failed("saved_form", error))?;
    }
    Ok(())
}
