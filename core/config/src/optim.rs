//! `[optim]`: the optimizer and the schedule of its learning rate.

use std::collections::BTreeMap;

use espalier_interface::optimizer::{Numbers, OptimizerSpec};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value as Json;

use super::{ParamType, pattern_matches};

/// The keys of `[optim]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimOptions {
    /// The optimizer's name.
    pub name: String,
    /// Peak learning rate, reached after warm-up.
    pub learning_rate: f64,
    /// Decay of the running mean and of the running square of the gradient, each in [0, 1).
    #[serde(deserialize_with = "pair")]
    pub betas: [f64; 2],
    /// Added to the root of the running square before dividing by it.
    pub eps: f64,
    /// `adamw8bit`: params with fewer elements keep the 32-bit state of `adamw`.
    pub min_8bit_size: u64,
    /// `sgd`: decay of the running sum of gradients, in [0, 1); unset is 0, which keeps no sum.
    pub momentum: Option<f64>,
    /// `sgd`: Nesterov's momentum.
    pub nesterov: Option<bool>,
    /// `adamw` and `sgd`: number type of the state that is kept of each parameter.
    pub state: ParamType,
    /// Whether parameters of `model.params = "bf16"` are rounded up or down at random after a step,
    /// so that their mean is kept, instead of to the nearest.
    pub stochastic_rounding: bool,
    /// Weight decay: decoupled for `adamw` and `adamw8bit`, added to the gradient for `sgd`.
    pub weight_decay: f64,
    /// Whether biases and norms decay, too, in full fine-tuning.
    pub decay_norms_and_biases: bool,
    /// `[[optim.groups]]`: learning rates and decays of single params; the first match holds.
    pub groups: Vec<GroupRule>,
    /// Largest norm of the whole gradient, longer ones are scaled down to it; 0 is off.
    pub clip_norm: f64,
    /// Whether each unit is updated in the backward pass, as soon as its gradients are whole, which
    /// are then freed; not together with `clip_norm` or several micro-batches a step.
    pub in_backward: bool,
    /// The learning rate's schedule after warm-up.
    pub schedule: LearningRateSchedule,
    /// Where `linear` and `cosine` end, as a fraction of `learning_rate`.
    pub floor: f64,
    /// Steps over which the learning rate rises linearly from 0; not together with `warmup_ratio`.
    pub warmup_steps: u64,
    /// The same as a fraction of all steps, rounded up; not together with `warmup_steps`.
    pub warmup_ratio: Option<f64>,
}

impl Default for OptimOptions {
    fn default() -> Self {
        OptimOptions {
            name: "adamw".into(),
            learning_rate: 2e-4,
            betas: [0.9, 0.999],
            eps: 1e-8,
            min_8bit_size: 4096,
            momentum: None,
            nesterov: None,
            state: ParamType::F32,
            stochastic_rounding: false,
            weight_decay: 0.0,
            decay_norms_and_biases: false,
            groups: Vec::new(),
            clip_norm: 1.0,
            in_backward: false,
            schedule: LearningRateSchedule::Constant,
            floor: 0.0,
            warmup_steps: 0,
            warmup_ratio: None,
        }
    }
}

impl OptimOptions {
    /// Keys that may differ where a run is resumed: they change no result.
    pub const RESUMABLE: [&str; 1] = ["in_backward"];

    /// The optimizer as data, as its settings and a run's `numbers` make it; none where its name is
    /// not known.
    pub fn optimizer(&self, numbers: Numbers) -> Option<OptimizerSpec> {
        let spec = OptimizerSpec::named(&self.name)?;
        let scalars = self.scalars(&spec);
        let value = |name: &str| scalars.get(name).copied().unwrap_or(0.0);
        Some(spec.of_run(&value, numbers))
    }

    /// The scalars that the settings of `optimizer` give, by name; 0 where a key is unset.
    pub fn scalars(&self, optimizer: &OptimizerSpec) -> BTreeMap<String, f64> {
        let mut scalars = BTreeMap::new();
        for setting in &optimizer.settings {
            let numbers = self.numbers(&setting.key).into_iter();
            scalars.extend(setting.scalars.iter().cloned().zip(numbers));
        }
        scalars
    }

    /// The numbers of a key: of a list all, of `true` 1; none where it is unset.
    pub(crate) fn numbers(&self, key: &str) -> Vec<f64> {
        let tree = serde_json::to_value(self).expect("options are plain data");
        let values = match tree.get(key) {
            None | Some(Json::Null) => Vec::new(),
            Some(Json::Array(values)) => values.clone(),
            Some(value) => vec![value.clone()],
        };
        let number = |value: &Json| match value {
            Json::Bool(value) => Some(f64::from(u8::from(*value))),
            value => value.as_f64(),
        };
        values.iter().filter_map(number).collect()
    }

    /// A warning for a second moment that can rise and never falls: without a gradient it is
    /// multiplied by beta2, and rounded back to what it was where 1 - beta2 is at most 2^-9, a
    /// quarter of the least distance of numbers of bf16 over a number.
    pub fn second_moment_warning(&self) -> Option<String> {
        let beta2 = self.betas[1];
        let stays = 1.0 - beta2 <= 0.5f64.powi(9);
        (self.name == "adamw" && self.state == ParamType::Bf16 && stays).then(|| {
            format!(
                "optim.state = \"bf16\" with a beta2 of {beta2}: a second moment of bf16 can rise \
                 and never falls, since a step changes it by less than it is rounded; set \
                 optim.betas = [{}, 0.99], or optim.state = \"f32\"",
                self.betas[0]
            )
        })
    }

    /// Steps of warm-up in a run of `total_steps`: `warmup_steps`, or
    /// `ceil(warmup_ratio * total_steps)`.
    pub fn warmup(&self, total_steps: u64) -> u64 {
        match self.warmup_ratio {
            Some(ratio) => (ratio * total_steps as f64).ceil() as u64,
            None => self.warmup_steps,
        }
    }
}

/// One `[[optim.groups]]` entry; of several that match a param, the first one holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupRule {
    /// Pattern of param names; `*` stands for any characters (`*.embed_tokens.weight`).
    pub pattern: String,
    /// Their peak learning rate; unset: the run's.
    #[serde(default)]
    pub learning_rate: Option<f64>,
    /// Their weight decay; unset: the run's.
    #[serde(default)]
    pub weight_decay: Option<f64>,
}

impl GroupRule {
    /// Whether the whole of `name` matches the pattern.
    pub fn matches(&self, name: &str) -> bool {
        pattern_matches(&self.pattern, name)
    }
}

/// The learning rate's schedule after warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LearningRateSchedule {
    /// Stays at the peak.
    #[default]
    Constant,
    /// Falls on a line to the floor.
    Linear,
    /// Falls on half a cosine to the floor.
    Cosine,
}

/// Exactly two numbers: a fixed-size array alone would silently take the first two of three.
fn pair<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[f64; 2], D::Error> {
    let values = Vec::<f64>::deserialize(deserializer)?;
    let len = values.len();
    values
        .try_into()
        .map_err(|_| D::Error::invalid_length(len, &"a list of 2 numbers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warmup_comes_from_steps_or_rounds_the_ratio_up() {
        let mut optim = OptimOptions {
            warmup_steps: 7,
            ..OptimOptions::default()
        };
        assert_eq!(optim.warmup(100), 7);
        optim.warmup_ratio = Some(0.03);
        assert_eq!(optim.warmup(101), 4);
        optim.warmup_ratio = Some(0.0);
        assert_eq!(optim.warmup(101), 0);
    }

    #[test]
    fn a_second_moment_that_never_falls_is_told() {
        let of = |beta2: f64, state| OptimOptions {
            betas: [0.9, beta2],
            state,
            ..OptimOptions::default()
        };
        let (narrow, wide) = (ParamType::Bf16, ParamType::F32);
        let warning = of(0.999, narrow).second_moment_warning();
        assert!(warning.is_some_and(|text| text.contains("optim.betas = [0.9, 0.99]")));
        assert_eq!(of(0.99, narrow).second_moment_warning(), None);
        assert_eq!(of(0.999, wide).second_moment_warning(), None);
        // The bound itself: all numbers of a binade, times beta2, to the nearest of 8 bits.
        for (less, falls) in [(0.5f64.powi(9), false), (0.5f64.powi(8), true)] {
            let rounded = |m: f64| {
                let x = m * (1.0 - less);
                let step = if x < 128.0 { 0.5 } else { 1.0 };
                (x / step).round_ties_even() * step
            };
            let mut binade = (128..256).map(f64::from);
            assert!(binade.all(|m| (rounded(m) < m) == falls), "{less}");
        }
    }

    #[test]
    fn betas_are_exactly_two() {
        let betas = |text: &str| serde_json::from_str::<OptimOptions>(text).map(|o| o.betas);
        assert_eq!(
            betas(r#"{"betas": [0.5, 0.75]}"#).expect("two"),
            [0.5, 0.75]
        );
        assert!(betas(r#"{"betas": [0.5]}"#).is_err());
        assert!(betas(r#"{"betas": [0.5, 0.75, 0.9]}"#).is_err());
    }
}
