//! Trained params and `[[optim.groups]]` -> groups of params that share a learning rate and a
//! weight decay. Each launch of the update covers a part of a unit's trainable run.

use std::ops::Range;

use espalier_compile::flat_params::FlatParams;
use espalier_compile::params::{Param, Training};
use espalier_config::{GroupRule, OptimOptions};
use espalier_interface::model::ParamKind;
use espalier_interface::optimizer::{OptimizerSpec, ParamSize};
use serde::{Deserialize, Serialize};

/// Trained params that share a learning rate and a weight decay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ParamGroup {
    /// Its pattern; none for the params that no pattern matches.
    pub pattern: Option<String>,
    /// Whether it holds only the biases and norms that are exempt from decay.
    pub exempt: bool,
    /// Its learning rate over the run's, where an adapter says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learning_rate_ratio: Option<f64>,
    /// Its learning rate at the schedule's peak.
    pub learning_rate: f64,
    /// Its weight decay.
    pub weight_decay: f64,
    /// Its params.
    pub params: u64,
    /// Their elements.
    pub elements: u64,
}

/// The groups of a run. Every trained param is in one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParamGroups {
    groups: Vec<ParamGroup>,
    /// The group of each param; none for a frozen one.
    of: Vec<Option<usize>>,
}

/// A part of a trainable run whose params are of one group and one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPart {
    /// Index of the group.
    pub group: usize,
    /// The size of its params for the optimizer.
    pub size: ParamSize,
    /// Elements.
    pub elements: Range<u64>,
    /// Its only param, where the optimizer updates params apart.
    pub only: Option<OnlyParam>,
}

/// The param of a launch that covers no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnlyParam {
    /// Its index.
    pub param: usize,
    /// Index in it of the launch's first element.
    pub first: u64,
}

impl ParamGroups {
    /// The groups of `params`: those of the patterns in their order, then the others. A param is in
    /// the group of the first pattern that matches its name. Where biases and norms are exempt from
    /// decay, they are apart, unless their pattern has a decay of its own. So are params to which
    /// an adapter gives another rate, unless their pattern has a rate of its own.
    pub fn of(optim: &OptimOptions, params: &[Param], training: Training) -> Self {
        let of_model = matches!(training, Training::Full | Training::Part);
        let exempts = of_model && !optim.decay_norms_and_biases;
        let mut found = ParamGroups {
            groups: Vec::new(),
            of: vec![None; params.len()],
        };
        let rules = optim.groups.iter().map(Some).chain([None]);
        let first = |param: &Param| {
            optim
                .groups
                .iter()
                .position(|rule| rule.matches(&param.name))
        };
        for (index, rule) in rules.enumerate() {
            let number = rule.map(|_| index);
            let members = params.iter().enumerate();
            let members: Vec<(usize, &Param)> = members
                .filter(|(_, param)| param.trainable && first(param) == number)
                .collect();
            for exempt in [false, true] {
                let of_group = |param: &Param| {
                    let apart = exempts && group_decays(optim, rule) && is_norm_or_bias(param);
                    apart == exempt
                };
                let members = members.iter().filter(|(_, param)| of_group(param));
                let members: Vec<(usize, &Param)> = members.copied().collect();
                let mut ratios: Vec<f64> = Vec::new();
                for ratio in members.iter().map(|(_, param)| ratio_of(rule, param)) {
                    if !ratios.contains(&ratio) {
                        ratios.push(ratio);
                    }
                }
                for ratio in ratios {
                    let alike = members.iter().copied();
                    let alike = alike.filter(|(_, param)| ratio_of(rule, param) == ratio);
                    found.add(group(optim, rule, exempt, ratio), alike);
                }
            }
        }
        found
    }

    /// All groups.
    pub fn all(&self) -> &[ParamGroup] {
        &self.groups
    }

    /// The group of a param; none for a frozen one.
    pub fn of_param(&self, param: usize) -> Option<&ParamGroup> {
        Some(&self.groups[self.of[param]?])
    }

    /// The parts of a unit's run within `own`, each counted from its begin. Params of one group
    /// that are adjacent are one part, with what is between them, unless the optimizer updates
    /// params apart. After a param whose last block is short a part ends: what follows the param is
    /// of no block.
    pub fn parts(
        &self,
        flat: &FlatParams,
        optimizer: &OptimizerSpec,
        own: &Range<u64>,
    ) -> Vec<GroupPart> {
        let mut parts: Vec<GroupPart> = Vec::new();
        for (param, elements) in &flat.trainable {
            let group = self.of[*param].expect("a trainable param is in a group");
            let length = elements.end - elements.start;
            let size = optimizer.size_of(length);
            let updated_by = optimizer.of_size(size);
            let mut part = GroupPart {
                group,
                size,
                elements: elements.clone(),
                only: (updated_by.updates_params_apart()).then_some(OnlyParam {
                    param: *param,
                    first: 0,
                }),
            };
            if length.is_multiple_of(updated_by.block()) {
                part.elements.end = elements.start + length.next_multiple_of(updated_by.granule());
            }
            match parts.last_mut() {
                Some(last) if last.continues_in(&part) => last.elements.end = part.elements.end,
                _ => parts.push(part),
            }
        }
        let within = |part: GroupPart| {
            let [start, end] =
                [part.elements.start, part.elements.end].map(|at| at.clamp(own.start, own.end));
            GroupPart {
                elements: start - own.start..end - own.start,
                only: part.only.map(|only| OnlyParam {
                    first: start - part.elements.start,
                    ..only
                }),
                ..part
            }
        };
        let parts = parts.into_iter().map(within);
        parts.filter(|part| !part.elements.is_empty()).collect()
    }

    /// Adds a group with its params, unless it has none.
    fn add<'a>(&mut self, group: ParamGroup, members: impl Iterator<Item = (usize, &'a Param)>) {
        let mut group = group;
        for (index, param) in members {
            self.of[index] = Some(self.groups.len());
            group.params += 1;
            group.elements += param.elements();
        }
        if group.params > 0 {
            self.groups.push(group);
        }
    }
}

impl GroupPart {
    /// Whether `next` can be updated in the same launch.
    fn continues_in(&self, next: &GroupPart) -> bool {
        let same = (self.group, self.size) == (next.group, next.size);
        let apart = self.only.is_some() || next.only.is_some();
        same && !apart && self.elements.end == next.elements.start
    }
}

impl ParamGroup {
    /// Its params in words.
    pub fn name(&self) -> String {
        let params = match (&self.pattern, self.exempt) {
            (Some(pattern), false) => format!("\"{pattern}\""),
            (Some(pattern), true) => format!("\"{pattern}\", biases and norms"),
            (None, false) => "others".to_owned(),
            (None, true) => "other biases and norms".to_owned(),
        };
        match self.learning_rate_ratio {
            Some(ratio) => format!("{params}, at {ratio} times the rate"),
            None => params,
        }
    }
}

/// The learning rate of a param over that of its rule or run. A rate that its rule names is not
/// changed.
fn ratio_of(rule: Option<&GroupRule>, param: &Param) -> f64 {
    match rule.and_then(|rule| rule.learning_rate) {
        Some(_) => 1.0,
        None => param.learning_rate_ratio,
    }
}

/// An empty group of `rule`.
fn group(optim: &OptimOptions, rule: Option<&GroupRule>, exempt: bool, ratio: f64) -> ParamGroup {
    let own = |number: fn(&GroupRule) -> Option<f64>| rule.and_then(number);
    let decay = own(|rule| rule.weight_decay).unwrap_or(optim.weight_decay);
    ParamGroup {
        pattern: rule.map(|rule| rule.pattern.clone()),
        exempt,
        learning_rate_ratio: (ratio != 1.0).then_some(ratio),
        learning_rate: ratio * own(|rule| rule.learning_rate).unwrap_or(optim.learning_rate),
        weight_decay: if exempt { 0.0 } else { decay },
        params: 0,
        elements: 0,
    }
}

/// Whether the params of `rule` decay as the run says, and do so at all.
fn group_decays(optim: &OptimOptions, rule: Option<&GroupRule>) -> bool {
    let own = rule.and_then(|rule| rule.weight_decay);
    own.is_none() && optim.weight_decay > 0.0
}

/// Source: transformers' `Trainer.get_decay_parameter_names`, by the family's kinds instead of
/// names.
fn is_norm_or_bias(param: &Param) -> bool {
    matches!(param.kind, Some(ParamKind::Norm | ParamKind::Bias))
}

#[cfg(test)]
mod tests;
