//! `model.train_only` and the layers on record in `config.json` -> the model's weights that are
//! trained, of a run without an adapter.

use espalier_config::{Init, ModelOptions, pattern_matches};
use espalier_interface::model::{Model, UnitKind};
use espalier_system::failure::UsageError;
use serde_json::Value as Json;

use crate::Error;

/// The key of `config.json` that lists the layers that `host expand` added.
pub const EXPANDED_LAYERS: &str = "expanded_layers";
/// The entry of `model.train_only` that stands for those layers.
pub const EXPANDED: &str = "expanded";

/// The weights of a model that are trained.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrainedWeights {
    /// Patterns of their names; none for all weights.
    patterns: Option<Vec<String>>,
}

impl TrainedWeights {
    /// Those that `options` name of `model`, whose `config.json` is `config`.
    ///
    /// # Errors
    /// [`Error::Usage`] for `expanded` without such layers on record, and for random weights.
    pub fn of(options: &ModelOptions, config: &Json, model: &Model) -> Result<Self, Error> {
        if options.train_only.is_empty() {
            return Ok(TrainedWeights::default());
        }
        let refuse = |message: String, next_step: &str| {
            let next_step = next_step.to_owned();
            Err(Error::Usage(UsageError { message, next_step }))
        };
        if options.init == Init::Random {
            return refuse(
                "`model.train_only` trains a part of a checkpoint, and model.init = \"random\" \
                 reads none"
                    .to_owned(),
                "leave one of them out",
            );
        }
        let mut patterns = Vec::new();
        for entry in &options.train_only {
            if entry != EXPANDED {
                patterns.push(entry.clone());
                continue;
            }
            match expanded_prefixes(config, model) {
                Ok(prefixes) => patterns.extend(prefixes.iter().map(|prefix| format!("{prefix}*"))),
                Err(found) => {
                    return refuse(
                        format!(
                            "`model.train_only`: \"{EXPANDED}\" stands for the layers that \
                             `{EXPANDED_LAYERS}` of config.json lists, found {found}"
                        ),
                        "add layers with `host expand`, or name weights by patterns",
                    );
                }
            }
        }
        Ok(TrainedWeights {
            patterns: Some(patterns),
        })
    }

    /// Whether all weights of the model are trained, unless there is an adapter.
    pub fn are_all(&self) -> bool {
        self.patterns.is_none()
    }

    /// Whether weight `name` is one that `model.train_only` names.
    pub fn are_named(&self, name: &str) -> bool {
        let mut patterns = self.patterns.iter().flatten();
        patterns.any(|pattern| pattern_matches(pattern, name))
    }
}

/// The prefixes of the layers that `config` lists as added; what is there instead, if it lists none
/// of this model.
fn expanded_prefixes<'m>(config: &Json, model: &'m Model) -> Result<Vec<&'m str>, String> {
    let units = model.units.iter();
    let layers: Vec<&str> = units
        .filter(|unit| unit.kind == UnitKind::Layer)
        .map(|unit| unit.prefix.as_str())
        .collect();
    let Some(found) = config.get(EXPANDED_LAYERS) else {
        return Err("no such key".to_owned());
    };
    let prefix = |index: &Json| {
        let index = usize::try_from(index.as_u64()?).ok()?;
        layers.get(index).copied()
    };
    let listed = found.as_array().filter(|list| !list.is_empty());
    let prefixes = listed.and_then(|list| list.iter().map(prefix).collect());
    prefixes.ok_or_else(|| format!("{found} in a model of {} layers", layers.len()))
}
