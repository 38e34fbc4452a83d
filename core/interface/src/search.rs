//! The capability `search` of a sharding strategy -> what `host plan --auto` may try of it.
//!
//! A strategy without the capability is tried as it is configured. With it, the planner makes one
//! plan for each combination of the listed values. It predicts memory and time from the strategy's
//! own schedule. List only options that change no bit of the result.
//!
//! An option whose values name no stage refines a plan. It is tried on the best plan of each step
//! alone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::abi::descriptor::{ComponentDescriptor, OptionDescriptor};
use crate::range::allows;
use crate::{OptionKind, PluginError, Result};

/// The name of the capability.
pub const SEARCH: &str = "search";

/// What may be tried: the JSON text of the capability.
///
/// `{"world": "ranks", "options": {"offload": {"none": {}, "params": {"stage":
/// "offload_weights"}}}}`
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SearchSpec {
    /// The worlds that the strategy is tried in.
    pub world: SearchWorld,
    /// What it does for memory with every option at its default.
    pub stage: MemoryStage,
    /// By option and value: what that value means. Options that are not listed keep their value.
    pub options: BTreeMap<String, BTreeMap<String, ValueSpec>>,
}

/// What a value of an option means.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ValueSpec {
    /// The worlds that it is tried in.
    pub world: SearchWorld,
    /// What it does for memory; of several values the last stage counts.
    pub stage: MemoryStage,
    /// The stage that the other values must have reached: this value saves nothing before.
    pub after: MemoryStage,
}

/// The worlds that something is tried in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchWorld {
    /// Every world.
    #[default]
    Any,
    /// One rank.
    OneRank,
    /// Two ranks or more.
    Ranks,
    /// Two machines or more.
    Machines,
}

impl SearchWorld {
    /// Whether it holds a world of so many ranks on so many machines.
    pub fn holds(self, ranks: u32, machines: u32) -> bool {
        match self {
            SearchWorld::Any => true,
            SearchWorld::OneRank => ranks == 1,
            SearchWorld::Ranks => ranks > 1,
            SearchWorld::Machines => machines > 1,
        }
    }
}

/// What leaves the memory of a rank's device, from the least to the most. A later stage needs less
/// memory and moves more bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryStage {
    /// Nothing: every rank holds everything.
    #[default]
    Replicate,
    /// Gradients and optimizer state are sharded among ranks.
    ShardState,
    /// Weights are, too.
    ShardWeights,
    /// Weights are in host memory between uses.
    OffloadWeights,
    /// Values that a forward pass saves are there, too.
    OffloadActivations,
}

impl SearchSpec {
    /// What a component declares; nothing to search where it lacks the capability.
    ///
    /// # Errors
    /// `INVALID` where the text is no such JSON, or names an option or a value that the component
    /// does not declare.
    pub fn of(component: &ComponentDescriptor) -> Result<Self> {
        let Some(text) = component.capabilities.get(SEARCH) else {
            return Ok(SearchSpec::default());
        };
        let declared = &component.options;
        let spec: SearchSpec = serde_json::from_str(text)
            .map_err(|error| PluginError::invalid(format!("capability `{SEARCH}`: {error}")))?;
        for (name, values) in &spec.options {
            let Some(option) = declared.iter().find(|option| &option.name == name) else {
                return Err(PluginError::invalid(format!(
                    "capability `{SEARCH}`: expected options that the component declares, found `{name}`"
                )));
            };
            for value in values.keys() {
                let allowed = value_of(option, value).filter(|value| allows(&option.range, value));
                if allowed.is_none() {
                    return Err(PluginError::invalid(format!(
                        "capability `{SEARCH}`: option `{name}` is a {} in `{}`, found `{value}`",
                        option.kind, option.range
                    )));
                }
            }
        }
        Ok(spec)
    }
}

/// The value that a key of [`SearchSpec::options`] stands for; none where it is not of the option's
/// type.
pub fn value_of(option: &OptionDescriptor, key: &str) -> Option<Json> {
    if option.kind == OptionKind::TEXT.0 {
        return Some(key.into());
    }
    let value: Json = serde_json::from_str(key).ok()?;
    let is_of_kind = if option.kind == OptionKind::BOOL.0 {
        value.is_boolean()
    } else {
        value.is_number()
    };
    is_of_kind.then_some(value)
}

/// The key of [`SearchSpec::options`] that stands for a value.
pub fn key_of(value: &Json) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests;
