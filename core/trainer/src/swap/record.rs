//! The recorded swaps of a run: in its metrics, in `run.json` and in checkpoints.

use espalier_config::{ConfigError, ResolvedConfig};
use espalier_engine::load::DecodeCheck;
use espalier_engine::observer::{Event, Observer};
use espalier_interface::Role;
use espalier_registry::PluginIdentity;
use espalier_system::files::WeightsError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::{SwapRequest, plugin_dirs};
use crate::Error;

/// Sections of the config that a swap can change.
const SECTIONS: [&str; 5] = ["plugins", "quantizer", "adapter", "sharding", "backend"];

/// Whether a swap was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The new component took over.
    Taken,
    /// The run continued with the old component.
    #[default]
    Refused,
}

/// A swap, or a refusal, as a line of `metrics.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SwapRecord {
    /// Completed steps before it.
    pub step: u64,
    /// The outcome.
    pub outcome: Outcome,
    /// The requested component: `quantizer=hqq`.
    pub asked: String,
    /// The requested changes of options.
    pub changed: Vec<String>,
    /// The component before the swap; `None` where the role was empty.
    pub from: Option<PluginIdentity>,
    /// The component after the swap; of a refusal, the requested one, if found.
    pub to: Option<PluginIdentity>,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The time it took, in seconds.
    pub secs: f64,
    /// Weights that were encoded again.
    pub encoded: u64,
    /// Bytes allocated beside the old ones.
    pub bytes_beside: u64,
    /// Whether the new weights decode to their original values: one weight per format.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decode_checks: Vec<DecodeCheck>,
    /// Where the new bytes were staged: `memory` or `mapped file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staged_in: Option<String>,
    /// Loss of the next micro-batch, without dropout, with the old component.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_before: Option<f64>,
    /// The same with the new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_after: Option<f64>,
}

/// A completed swap, with all data that a later process needs to resume after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Swap {
    #[serde(flatten)]
    pub record: SwapRecord,
    /// The request.
    pub request: SwapRequest,
    /// The sections of plugins and their options after the swap.
    pub config: Map<String, Json>,
    /// All components after the swap.
    pub plugins: Vec<PluginIdentity>,
    /// Hash of the plan after the swap.
    pub plan_sha256: String,
}

/// The swaps of a run in their order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Swaps(pub Vec<Swap>);

impl SwapRecord {
    /// Whether the new component took over.
    pub fn is_taken(&self) -> bool {
        self.outcome == Outcome::Taken
    }

    /// `nf4 -> hqq`; of another version or other options of a component, its role and name.
    pub fn label(&self) -> String {
        let name = |identity: &Option<PluginIdentity>| match identity {
            Some(identity) => identity.component.clone(),
            None => "none".to_owned(),
        };
        let (from, to) = (name(&self.from), name(&self.to));
        if from == to {
            let role = self.asked.split('=').next().unwrap_or_default();
            return format!("{role} {to}");
        }
        format!("{from} -> {to}")
    }

    /// `quantizer nf4 -> hqq before step 7`, or that it was refused.
    pub fn shown(&self) -> String {
        let name = |identity: &Option<PluginIdentity>| match identity {
            Some(identity) => format!("{} {}", identity.component, identity.version),
            None => "none".to_owned(),
        };
        let role = self.asked.split('=').next().unwrap_or_default();
        let step = self.step + 1;
        match self.outcome {
            Outcome::Taken => format!(
                "{role} {} -> {} before step {step}",
                name(&self.from),
                name(&self.to)
            ),
            Outcome::Refused => format!(
                "{} refused before step {step}: {}",
                self.asked,
                self.reason.as_deref().unwrap_or("no reason given")
            ),
        }
    }
}

impl Swaps {
    /// The swaps in `run.json`, or in its copy in a checkpoint.
    ///
    /// # Errors
    /// A list with the format of another program version.
    pub fn of(run: &Json) -> Result<Self, Error> {
        match &run["swaps"] {
            Json::Null => Ok(Swaps::default()),
            list => serde_json::from_value(list.clone()).map_err(|error| {
                Error::Weights(WeightsError {
                    path: "run.json".into(),
                    message: format!("its list of swaps is of another version: {error}"),
                })
            }),
        }
    }

    /// The swaps of a checkpoint, by its copy of `run.json`, and those that its run made after it;
    /// all are told.
    ///
    /// # Errors
    /// As [`Swaps::of`].
    pub fn on_record(
        run: &Json,
        checkpoint: Option<&Json>,
        observer: &dyn Observer,
    ) -> Result<(Self, Vec<Swap>), Error> {
        let swaps = match checkpoint {
            Some(run) => Swaps::of(run)?,
            None => Swaps::default(),
        };
        let mut later = Swaps::of(run)?.0;
        later.drain(..swaps.0.len().min(later.len()));
        for swap in swaps.0.iter().chain(&later) {
            let note = format!("with the swap on record: {}", swap.record.shown());
            observer.observe(&Event::Note(&note));
        }
        Ok((swaps, later))
    }

    /// As JSON, for `run.json`.
    pub fn to_json(&self) -> Json {
        serde_json::to_value(self).expect("swaps are plain data")
    }

    /// `original` with the changes of the swaps.
    ///
    /// # Errors
    /// [`ConfigError`] for values that contradict the rest of the config.
    pub fn applied_to(&self, original: &ResolvedConfig) -> Result<ResolvedConfig, ConfigError> {
        let Some(last) = self.0.last() else {
            return Ok(original.clone());
        };
        let mut values = last.config.clone();
        let newest_first = self.0.iter().rev();
        let dirs = newest_first.flat_map(|swap| &swap.request.plugin_dirs);
        let run = values
            .entry("run")
            .or_insert_with(|| Json::Object(Map::new()));
        run["plugin_dirs"] = plugin_dirs::after(dirs, original.config());
        let adapter = |swap: &Swap| swap.request.role == Role::ADAPTER.0;
        let after = original.overlaid("swap", values, &[])?;
        Ok(after.with_own_adapter_options(self.0.iter().any(adapter)))
    }

    /// `run`, the content of `run.json`, with the components and the plan after the swaps.
    pub fn result_in(&self, run: &Json) -> Json {
        let mut run = run.clone();
        if let Some(last) = self.0.last() {
            run["plugins"] =
                serde_json::to_value(&last.plugins).expect("identities are plain data");
            run["plan_sha256"] = Json::from(last.plan_sha256.clone());
        }
        run
    }
}

/// The values of `resolved` that a swap can have changed, except library folders.
pub(super) fn choices(resolved: &ResolvedConfig) -> Map<String, Json> {
    let mut values = resolved.values();
    let backend = resolved.config().run.backend.clone();
    values.retain(|section, _| SECTIONS.contains(&section.as_str()));
    if let Some(backend) = backend {
        let run = Map::from_iter([("backend".to_owned(), Json::from(backend))]);
        values.insert("run".to_owned(), Json::Object(run));
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use espalier_config::{Sources, resolve};

    #[test]
    fn the_last_swap_decides_over_the_original_config() {
        let line = "plugins=[\"nf4\",\"lora\"]";
        let sources = Sources::default()
            .set(line)
            .set("optim.learning_rate=1e-3")
            .set("run.plugin_dirs=[\"own\"]");
        let original = resolve(&sources).expect("a config");
        let changed = original
            .overlaid(
                "swap",
                Map::from_iter([("plugins".to_owned(), serde_json::json!(["lora", "hqq"]))]),
                &["quantizer.hqq.bits=3".to_owned()],
            )
            .expect("a config");
        let swap = Swap {
            record: SwapRecord::default(),
            request: SwapRequest {
                plugin_dirs: vec!["/theirs".into()],
                ..SwapRequest::default()
            },
            config: choices(&changed),
            plugins: Vec::new(),
            plan_sha256: "new".to_owned(),
        };
        let swaps = Swaps(vec![swap]);
        let run = serde_json::json!({"plan_sha256": "old", "seed": 1, "swaps": swaps.to_json()});
        assert_eq!(Swaps::of(&run).expect("a list"), swaps);
        let result = swaps.result_in(&run);
        assert_eq!(
            (&result["plan_sha256"], &result["seed"]),
            (&Json::from("new"), &Json::from(1))
        );
        let after = swaps.applied_to(&original).expect("a config");
        let config = after.config();
        assert_eq!(config.plugins, ["lora", "hqq"]);
        assert_eq!(config.quantizer["hqq"]["bits"], 3);
        assert_eq!(config.optim, original.config().optim);
        assert_eq!(
            config.run.plugin_dirs,
            [std::path::Path::new("/theirs"), "own".as_ref()]
        );
        let none = Swaps::default();
        let same = none.applied_to(&original).expect("a config");
        assert_eq!(same.config(), original.config());
    }
}
