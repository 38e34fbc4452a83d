//! Config and checkpoint -> the quantizer of every site.

use espalier_config::{Config, Section};
use espalier_interface::adaptation::{Site, SiteKind};
use espalier_interface::{Quantizer, Services};
use espalier_system::failure::UsageError;
use serde_json::Value as Json;

use super::PackedCheckpoint;
use crate::Error;
use crate::chosen::Chosen;
use crate::registry::{PluginIdentity, Registry};

/// The quantizers that a config names, and those of a packed checkpoint.
pub struct Quantizers {
    default: Option<Named>,
    /// One for each `[[sites]]` rule; none keeps the weight dense.
    rules: Vec<Option<Named>>,
    packed: Option<PackedCheckpoint>,
}

/// A quantizer and the options that the user gave it.
struct Named {
    given: Section,
    chosen: Chosen<dyn Quantizer>,
}

impl Quantizers {
    /// Makes the quantizers: `default` for the linears of layers, and those of the rules.
    ///
    /// # Errors
    /// [`Error::Registry`] for an unknown name or an unusable option.
    pub fn select(
        config: &Config,
        default: Option<&str>,
        packed: Option<PackedCheckpoint>,
        registry: &Registry,
        services: &'static dyn Services,
    ) -> Result<Self, Error> {
        let make = |name: &str, more: &Section| -> Result<Named, Error> {
            let mut given = config
                .section("quantizer", name)
                .cloned()
                .unwrap_or_default();
            given.extend(more.clone());
            let chosen = Chosen::quantizer(registry, name, &given, services)?;
            Ok(Named { given, chosen })
        };
        let rule = |site: &espalier_config::SiteRule| match site.quantizer.as_deref() {
            Some("none") => Ok(None),
            name => name
                .or(default)
                .map(|name| make(name, &site.options))
                .transpose(),
        };
        Ok(Quantizers {
            rules: config.sites.iter().map(rule).collect::<Result<_, _>>()?,
            default: default
                .map(|name| make(name, &Section::new()))
                .transpose()?,
            packed,
        })
    }

    /// The quantizer of a site: the checkpoint's, else that of the last rule that matches, else the
    /// run's own for linears of layers.
    ///
    /// # Errors
    /// [`Error::Usage`] where the config asks for another quantizer than the checkpoint's.
    pub fn of(
        &self,
        config: &Config,
        site: &Site,
    ) -> Result<Option<&Chosen<dyn Quantizer>>, Error> {
        let matching = config.sites.iter().zip(&self.rules).rev();
        let rule = matching
            .into_iter()
            .find(|(rule, _)| rule.matches(&site.name))
            .map(|(_, named)| named.as_ref());
        let linear = site.kind == SiteKind::Linear;
        let Some(packed) = &self.packed else {
            let named = rule.unwrap_or(self.default.as_ref().filter(|_| linear));
            return Ok(named.map(|named| &named.chosen));
        };
        let found = packed.quantizer_of(&site.name);
        let (wanted, by) = match rule {
            Some(named) => (named, "[[sites]]"),
            // A linear that the checkpoint holds dense stays so.
            None if found.is_none() => return Ok(None),
            None => match &self.default {
                None => return Ok(found.map(|packing| &packing.chosen)),
                named => (named.as_ref(), "the config"),
            },
        };
        let name = |named: Option<&Chosen<dyn Quantizer>>| {
            named
                .map_or("none", |chosen| &chosen.identity.component)
                .to_owned()
        };
        let (asked, held) = (
            name(wanted.map(|named| &named.chosen)),
            name(found.map(|packing| &packing.chosen)),
        );
        if asked != held {
            let what = format!(
                "{by} asks for quantizer `{asked}`, the checkpoint holds it packed by `{held}`"
            );
            return Err(refuse(site, &what));
        }
        if let (Some(named), Some(packing)) = (wanted, found) {
            for (key, value) in &named.given {
                if packing.options.0.get(key) != Some(value) {
                    let held = packing.options.0.get(key).unwrap_or(&Json::Null);
                    let what = format!(
                        "{by} asks for {key} = {value}, the checkpoint was packed with {held}"
                    );
                    return Err(refuse(site, &what));
                }
            }
        }
        Ok(found.map(|packing| &packing.chosen))
    }

    /// The quantizer of the linears that no rule names.
    pub fn main(&self) -> Option<&PluginIdentity> {
        let default = self.default.as_ref().map(|named| &named.chosen.identity);
        let packed = self.packed.as_ref();
        default.or_else(|| packed.and_then(|packed| packed.identities().next()))
    }

    /// The checkpoint's own packing, where it has one.
    pub fn packed(&self) -> Option<&PackedCheckpoint> {
        self.packed.as_ref()
    }

    /// True where linears of layers are packed that no rule names.
    pub fn pack_by_default(&self) -> bool {
        self.default.is_some() || self.packed.is_some()
    }

    /// Where each of them came from.
    pub fn identities(&self) -> impl Iterator<Item = &PluginIdentity> {
        let named = self.default.iter().chain(self.rules.iter().flatten());
        let packed = self.packed.iter().flat_map(PackedCheckpoint::identities);
        named.map(|named| &named.chosen.identity).chain(packed)
    }
}

fn refuse(site: &Site, what: &str) -> Error {
    Error::Usage(UsageError {
        message: format!("`{}`: {what}", site.name),
        next_step: "leave the quantizer out: the checkpoint's own is taken; \
                    or start from the model's original weights"
            .to_owned(),
    })
}
