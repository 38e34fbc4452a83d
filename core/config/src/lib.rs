//! Turns the user's settings (files, environment, `--set`, flags) into one validated [`Config`].
//!
//! The order of the layers is: built-in defaults < `--config` files in order < environment
//! (`HOST__SECTION__KEY`) < `--set key=value` < flags. [`resolve`] merges them, refuses unknown
//! keys, wrong types and values out of range, and remembers for every value which layer gave it.

mod check;
mod compare;
mod error;
mod faults;
mod known;
mod model;
mod nearest;
mod optim;
mod options;
mod origin;
mod reference;
mod render;
mod resolve;
mod run;
mod sites;
mod sources;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use compare::{ArmOptions, CompareOptions, Turns};
pub use error::ConfigError;
pub use espalier_data::{DataOptions, TooLong, TrainOn};
pub use model::{ComputeType, Init, ModelOptions, ParamType};
pub use nearest::nearest;
pub use optim::{GroupRule, LearningRateSchedule, OptimOptions};
pub use options::{OptionError, check as check_options};
pub use origin::Origin;
pub use reference::{KeyReference, SectionReference, reference};
pub use render::toml_value;
pub use resolve::{Need, ResolvedConfig, resolve};
pub use run::RunOptions;
pub use sites::{SiteRule, pattern_matches};
pub use sources::Sources;
pub use sources::parse_value;

/// A plugin's options as written: checked later against the options that the plugin declares.
pub type Section = serde_json::Map<String, serde_json::Value>;

/// A section and some of its keys.
type SectionKeys = (&'static str, &'static [&'static str]);

/// A run's settings, after all layers are merged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Component names, one a role (`["nf4", "lora"]`); a role left out takes its default.
    pub plugins: Vec<String>,
    /// `[run]`: how long, how often, where to.
    pub run: RunOptions,
    /// `[model]`: which weights, computed how.
    pub model: ModelOptions,
    /// `[data]`: which rows, in what batches.
    pub data: DataOptions,
    /// `[optim]`: the optimizer and the learning rate's schedule.
    pub optim: OptimOptions,
    /// `[quantizer.NAME]`: each quantizer's own options.
    pub quantizer: BTreeMap<String, Section>,
    /// `[adapter.NAME]`: each adapter's own options.
    pub adapter: BTreeMap<String, Section>,
    /// `[sharding.NAME]`: each sharding strategy's own options.
    pub sharding: BTreeMap<String, Section>,
    /// `[backend.NAME]`: each backend's own options.
    pub backend: BTreeMap<String, Section>,
    /// `[collective.NAME]`: each collective's own options.
    pub collective: BTreeMap<String, Section>,
    /// `[[sites]]`: exceptions for single sites, the last match wins.
    pub sites: Vec<SiteRule>,
    /// `[compare]`: how arms are compared; a single run does not ask.
    pub compare: CompareOptions,
    /// `[[arms]]`: what is compared.
    pub arms: Vec<ArmOptions>,
}

impl Config {
    /// The roles that have sections of plugin options, in the order of the file.
    pub const ROLES: [&'static str; 5] =
        ["quantizer", "adapter", "sharding", "backend", "collective"];

    /// All plugin sections, by role (one of [`Config::ROLES`]) and then by component.
    pub fn sections(&self) -> [(&'static str, &BTreeMap<String, Section>); 5] {
        let [quantizer, adapter, sharding, backend, collective] = Self::ROLES;
        [
            (quantizer, &self.quantizer),
            (adapter, &self.adapter),
            (sharding, &self.sharding),
            (backend, &self.backend),
            (collective, &self.collective),
        ]
    }

    /// The options given for component `name` of `role` (one of [`Config::ROLES`]), if any.
    pub fn section(&self, role: &str, name: &str) -> Option<&Section> {
        let mut sections = self.sections().into_iter();
        let (_, sections) = sections.find(|(of, _)| *of == role)?;
        sections.get(name)
    }

    /// Keys that may differ where a run is resumed.
    const RESUMABLE: [SectionKeys; 4] = [
        ("run", &RunOptions::RESUMABLE),
        ("model", &ModelOptions::RESUMABLE),
        ("data", &DataOptions::RESUMABLE),
        ("optim", &OptimOptions::RESUMABLE),
    ];

    /// Keys that are no part of a run's identity.
    const WITHOUT_EFFECT: [SectionKeys; 1] = [("run", &RunOptions::WITHOUT_EFFECT)];

    /// Keys that may differ between the processes of a run.
    const LOCAL: [SectionKeys; 3] = [
        ("run", &RunOptions::LOCAL),
        ("model", &ModelOptions::LOCAL),
        ("data", &DataOptions::LOCAL),
    ];

    /// Whether the key, such as `run.threads`, may differ where a run is resumed: it changes no
    /// result.
    pub fn is_resumable(key: &str) -> bool {
        is_among(&Self::RESUMABLE, key)
    }

    /// Whether the key may differ between the processes of a run: paths, threads and libraries of
    /// their machine.
    pub fn is_local(key: &str) -> bool {
        is_among(&Self::LOCAL, key)
    }

    /// Removes the keys that are no part of a run's identity from `config`, a config as JSON.
    pub fn remove_without_effect(config: &mut serde_json::Value) {
        for (section, names) in Self::WITHOUT_EFFECT {
            let section = config.get_mut(section);
            let Some(section) = section.and_then(serde_json::Value::as_object_mut) else {
                continue;
            };
            for name in names {
                section.shift_remove(*name);
            }
        }
    }

    /// Whether a config has the key, such as `run.threads`. The keys of plugins' sections are the
    /// plugins' own.
    pub fn has_key(key: &str) -> bool {
        let defaults = serde_json::to_value(Config::default()).expect("a config is plain data");
        let mut names = key.split('.');
        let section = names.next().and_then(|name| defaults.get(name));
        let of_plugins = section.is_some() && Self::ROLES.iter().any(|role| key.starts_with(role));
        of_plugins
            || match (section.and_then(serde_json::Value::as_object), names.next()) {
                (Some(keys), Some(name)) => keys.contains_key(name),
                _ => section.is_some(),
            }
    }

    /// Micro-batches of one optimizer step: `ceil(batch_size / micro_batch)`, the last may be
    /// smaller. Not the count where `pack_tokens` fills them.
    pub fn micro_batches(&self) -> usize {
        self.data.batch_size.div_ceil(self.data.micro_batch)
    }
}

/// Whether `key`, with its section, is among `keys`.
fn is_among(keys: &[SectionKeys], key: &str) -> bool {
    let Some((section, name)) = key.split_once('.') else {
        return false;
    };
    let found = keys.iter().find(|(of, _)| *of == section);
    // The entries of a table are named by the table.
    let name = name.split('.').next().unwrap_or(name);
    found.is_some_and(|(_, names)| names.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_contract() {
        let config = Config::default();
        assert_eq!(config.run.seed, 42);
        assert_eq!(config.run.epochs, 1);
        assert_eq!(config.run.keep_last, 3);
        assert_eq!(config.model.compute, ComputeType::Bf16);
        assert_eq!(config.model.params, ParamType::F32);
        assert_eq!(config.data.max_seq_len, 2048);
        assert_eq!(config.micro_batches(), 8);
        assert_eq!(config.optim.learning_rate, 2e-4);
        assert_eq!(config.optim.betas, [0.9, 0.999]);
        assert_eq!(config.optim.clip_norm, 1.0);
    }

    #[test]
    fn the_listed_keys_are_known_and_those_without_effect_may_change_on_resume() {
        let config = serde_json::to_value(Config::default()).expect("plain data");
        let lists = Config::RESUMABLE.iter().chain(&Config::LOCAL);
        for (section, names) in lists.chain(&Config::WITHOUT_EFFECT) {
            for name in *names {
                assert!(config[section].get(name).is_some(), "{section}.{name}");
                assert!(Config::is_resumable(&format!("{section}.{name}")));
            }
        }
        let mut left = config.clone();
        Config::remove_without_effect(&mut left);
        let keys =
            |config: &serde_json::Value| config["run"].as_object().map_or(0, |run| run.len());
        assert_eq!(
            keys(&config) - keys(&left),
            RunOptions::WITHOUT_EFFECT.len()
        );
        assert!(Config::is_local("data.cache_dir") && !Config::is_local("run.seed"));
        assert!(Config::is_resumable("run.plugin_hashes.nf4"));
        for key in [
            "run.seed",
            "data.fields.text",
            "quantizer.nf4.block_size",
            "plugins",
        ] {
            assert!(Config::has_key(key), "{key}");
        }
        for key in ["run.thveads", "rum.seed", "seed", ""] {
            assert!(!Config::has_key(key), "{key}");
        }
        for key in ["run.seed", "run", "data.max_seq_len", "optim.out", "out"] {
            assert!(!Config::is_resumable(key), "{key}");
        }
    }

    #[test]
    fn the_last_micro_batch_may_be_smaller() {
        let mut config = Config::default();
        config.data.batch_size = 10;
        config.data.micro_batch = 4;
        assert_eq!(config.micro_batches(), 3);
    }

    #[test]
    fn sections_are_found_by_role_and_name() {
        let mut config = Config::default();
        let options = Section::from_iter([("rank".to_owned(), 4.into())]);
        config.adapter.insert("lora".into(), options.clone());
        assert_eq!(config.section("adapter", "lora"), Some(&options));
        assert_eq!(config.section("quantizer", "lora"), None);
        assert_eq!(config.section("no such role", "lora"), None);
    }
}
