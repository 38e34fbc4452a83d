//! Merges the layers into a [`Config`] and keeps the origin of every value.

mod rules;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use figment::error::Kind;
use figment::value::{Dict, Map as ProfileMap, Value as FigmentValue};
use figment::{Figment, Metadata, Profile, Provider};
use serde_json::{Map, Value};

use super::check::{check, describe};
use super::faults::Faults;
use super::known::tree;
use super::sources::{Layer, Sources, join};
use super::{Config, ConfigError, Origin, nearest, render};

/// A checked config, with the origin of every value.
#[derive(Clone, Debug)]
pub struct ResolvedConfig {
    config: Config,
    origins: BTreeMap<String, Origin>,
    prober: Option<PathBuf>,
    own_adapter_options: bool,
}

/// What a config is called that another one is laid over.
const BELOW: &str = "the run";

/// What a command cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// `model.path`.
    Model,
    /// At least one of `data.files`.
    Data,
    /// `run.out`.
    Out,
}

/// Merges all of `sources` over the defaults and checks the result.
///
/// # Errors
/// An unreadable or malformed file; else all unknown keys, wrong types, values out of range and
/// values that do not go together.
pub fn resolve(sources: &Sources) -> Result<ResolvedConfig, ConfigError> {
    let known = tree(&Config::default());
    let mut faults = Faults::default();
    let mut layers = vec![Layer::new(Origin::Default, known.clone())];
    for mut layer in sources.layers()? {
        check(&mut layer, &known, &mut faults);
        layers.push(layer);
    }
    let (config, merged) = loop {
        let merged = merge(&layers);
        let error = match merged.extract::<Config>() {
            Ok(config) => break (config, merged),
            Err(error) => error,
        };
        let path = error.path.clone();
        let fault = wrong_value(error, &merged, &layers);
        faults.add_value(&path.join("."), fault);
        let given = layers.iter_mut().skip(1);
        let left_out = given.filter_map(|layer| layer.leave_out(&path)).count();
        if left_out == 0 {
            faults.result()?;
            unreachable!("a fault was added");
        }
    };
    let values = merged
        .extract::<FigmentValue>()
        .map_err(|error| wrong_value(error, &merged, &layers))?;
    let mut origins = BTreeMap::new();
    collect_origins(&values, "", &merged, &layers, &mut origins);
    let resolved = ResolvedConfig {
        config: without_repeats(config),
        origins,
        prober: sources.probing_program(),
        own_adapter_options: false,
    };
    rules::check(&resolved, &mut faults);
    faults.result()?;
    Ok(resolved)
}

fn merge(layers: &[Layer]) -> Figment {
    let numbered = layers.iter().enumerate();
    numbered.fold(Figment::new(), |merged, (index, layer)| {
        merged.merge(Numbered { index, layer })
    })
}

impl ResolvedConfig {
    /// The values.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Where the value of `key` (`optim.learning_rate`) came from.
    pub fn origin(&self, key: &str) -> Origin {
        self.origins.get(key).cloned().unwrap_or(Origin::Default)
    }

    /// The program that tries plugin libraries, where the sources name one.
    pub fn prober(&self) -> Option<&Path> {
        self.prober.as_deref()
    }

    /// Refuses a config that lacks one of `needs`, naming the flag that gives it.
    pub fn require(&self, needs: &[Need]) -> Result<(), ConfigError> {
        for need in needs {
            let (there, key, flag) = match need {
                Need::Model => (
                    self.config.model.path.is_some(),
                    "model.path",
                    "--model DIR",
                ),
                Need::Data => (
                    !self.config.data.files.is_empty(),
                    "data.files",
                    "--data FILE",
                ),
                Need::Out => (self.config.run.out.is_some(), "run.out", "--out DIR"),
            };
            if !there {
                return Err(ConfigError::Missing {
                    key: key.into(),
                    flag: flag.into(),
                });
            }
        }
        Ok(())
    }

    /// This config with the tree `values` laid over it, as `flag` gave it, and `sets`, as `--set`
    /// takes them, over that.
    ///
    /// # Errors
    /// As [`resolve`].
    pub fn overlaid(
        &self,
        flag: &str,
        values: Map<String, Value>,
        sets: &[String],
    ) -> Result<Self, ConfigError> {
        let below = Sources::default().below(BELOW, self.values());
        let sources = sets.iter().fold(below.below(flag, values), Sources::set);
        self.again(&sources)
    }

    /// This config without the values of `keys` (`model.adapter`), which take their defaults.
    ///
    /// # Errors
    /// Values that do not go together any more.
    pub fn without(&self, keys: &[&str]) -> Result<Self, ConfigError> {
        let mut values = Value::Object(self.values());
        for key in keys {
            let path = pointer(key);
            let (section, name) = path.rsplit_once('/').expect("it begins with one");
            let section = values.pointer_mut(section).and_then(Value::as_object_mut);
            section.map(|section| section.remove(name));
        }
        let Value::Object(values) = values else {
            unreachable!("it was a table before")
        };
        self.again(&Sources::default().below(BELOW, values))
    }

    /// This config with `values` by their dotted keys, which `whence` gave; `null` unsets.
    ///
    /// # Errors
    /// Values that do not go together with the others.
    pub fn with_values(
        &self,
        whence: &str,
        values: BTreeMap<&str, Value>,
    ) -> Result<Self, ConfigError> {
        let mut resolved = self.clone();
        let mut tree = self.tree();
        for (key, value) in values {
            let place = tree.pointer_mut(&pointer(key));
            *place.expect("the key is one of the config") = value;
            let origin = Origin::Flag(whence.to_owned());
            resolved.origins.insert(key.to_owned(), origin);
        }
        resolved.config =
            serde_json::from_value(tree).expect("the values are of their keys' types");
        let mut faults = Faults::default();
        rules::check(&resolved, &mut faults);
        faults.result()?;
        Ok(resolved)
    }

    /// The value of `key` (`optim.learning_rate`); `null` where it is unset.
    pub fn value(&self, key: &str) -> Value {
        let tree = self.tree();
        tree.pointer(&pointer(key)).cloned().unwrap_or_default()
    }

    /// The values as a tree of sections, unset keys too.
    fn tree(&self) -> Value {
        Value::Object(tree(&self.config))
    }

    /// What `sources` come to, read beside this config, which is the lowest of them.
    fn again(&self, sources: &Sources) -> Result<Self, ConfigError> {
        let mut resolved = ResolvedConfig {
            prober: self.prober.clone(),
            own_adapter_options: self.own_adapter_options,
            ..resolve(sources)?
        };
        let below = Origin::Flag(BELOW.to_owned());
        for (key, origin) in &mut resolved.origins {
            if *origin == below {
                *origin = self.origin(key);
            }
        }
        Ok(resolved)
    }

    /// True where the adapter's options are the config's even if a saved adapter has options of its
    /// own.
    pub fn has_own_adapter_options(&self) -> bool {
        self.own_adapter_options
    }

    /// This config with that rule.
    pub fn with_own_adapter_options(mut self, own: bool) -> Self {
        self.own_adapter_options = own;
        self
    }

    /// The values as a tree of sections, without those that are unset.
    pub fn values(&self) -> Map<String, Value> {
        fn set(value: Value) -> Value {
            match value {
                Value::Object(table) => Value::Object(given(table)),
                other => other,
            }
        }
        fn given(table: Map<String, Value>) -> Map<String, Value> {
            let entries = table.into_iter().filter(|(_, value)| !value.is_null());
            entries.map(|(key, value)| (key, set(value))).collect()
        }
        match serde_json::to_value(&self.config) {
            Ok(Value::Object(table)) => given(table),
            _ => unreachable!("a config is a table of plain data"),
        }
    }

    /// The whole config as TOML, each value followed by where it came from as a comment; unset
    /// keys are comments. Reads back as a config file.
    pub fn to_toml(&self) -> String {
        render::render(&tree(&self.config), |key| self.origin(key))
    }
}

/// The JSON pointer of a dotted key.
fn pointer(key: &str) -> String {
    format!("/{}", key.replace('.', "/"))
}

/// A name given twice is one component.
fn without_repeats(mut config: Config) -> Config {
    let mut seen = std::collections::BTreeSet::new();
    config.plugins.retain(|name| seen.insert(name.clone()));
    config
}

/// A layer under a name that leads back to it.
struct Numbered<'a> {
    index: usize,
    layer: &'a Layer,
}

impl Provider for Numbered<'_> {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.index.to_string())
    }

    fn data(&self) -> figment::Result<ProfileMap<Profile, Dict>> {
        let dict = FigmentValue::serialize(&self.layer.values)?
            .into_dict()
            .unwrap_or_default();
        Ok(ProfileMap::from_iter([(Profile::Default, dict)]))
    }
}

fn origin_of(metadata: Option<&Metadata>, key: &str, layers: &[Layer]) -> Origin {
    metadata
        .and_then(|metadata| metadata.name.parse::<usize>().ok())
        .and_then(|index| layers.get(index))
        .map_or(Origin::Default, |layer| layer.origin(key))
}

fn collect_origins(
    value: &FigmentValue,
    path: &str,
    merged: &Figment,
    layers: &[Layer],
    origins: &mut BTreeMap<String, Origin>,
) {
    if let Some(dict) = value.as_dict() {
        for (key, value) in dict {
            collect_origins(value, &join(path, key), merged, layers, origins);
        }
    }
    let origin = origin_of(merged.get_metadata(value.tag()), path, layers);
    origins.insert(path.to_owned(), origin);
}

fn wrong_value(error: figment::Error, merged: &Figment, layers: &[Layer]) -> ConfigError {
    let key = error.path.join(".");
    let origin = origin_of(error.metadata.as_ref(), &key, layers);
    let root = merged.extract::<Value>().unwrap_or_default();
    let found = error
        .path
        .iter()
        .try_fold(&root, |value, segment| match value {
            Value::Array(items) => items.get(segment.parse::<usize>().ok()?),
            _ => value.get(segment),
        });
    let (expected, found) = match error.kind {
        Kind::UnknownVariant(name, variants) => {
            let listed = variants.join("`, `");
            let meant = nearest(&name, variants.iter().copied())
                .map(|name| format!(" (nearest: `{name}`)"))
                .unwrap_or_default();
            (format!("one of `{listed}`{meant}"), format!("`{name}`"))
        }
        Kind::InvalidType(actual, expected) | Kind::InvalidValue(actual, expected) => {
            let found = found.map_or_else(|| actual.to_string(), describe);
            (plain(&expected), found)
        }
        Kind::InvalidLength(len, expected) => (plain(&expected), format!("{len} values")),
        kind => (kind.to_string(), found.map_or_else(String::new, describe)),
    };
    ConfigError::Value {
        key,
        expected,
        found,
        origin: Box::new(origin),
    }
}

/// Rust's name of a type in words.
fn plain(expected: &str) -> String {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "path string" => "a path in quotes",
        "a sequence" => "a list",
        "a map" => "a table",
        other => other,
    }
    .into()
}
