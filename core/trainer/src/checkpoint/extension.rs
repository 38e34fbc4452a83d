//! Keys of a config that a run may change from a step on -> whether it may, and what follows.

use std::collections::{BTreeMap, BTreeSet};

use espalier_config::{OptimOptions, Origin, ResolvedConfig};
use espalier_engine::optim;
use serde_json::{Value as Json, json};

use super::completed_config;
use super::difference::{Difference, leaves};
use super::horizon::{longer_is_the_same, total_steps};

/// Keys that set the end of the run.
const HORIZON: [&str; 2] = ["run.epochs", "run.max_steps"];
/// Keys that hold from a step on where `--set` gives them.
const KEYS: [&str; 6] = [
    "run.epochs",
    "run.max_steps",
    "run.stop_after_worse",
    "optim.learning_rate",
    "optim.schedule",
    "optim.floor",
];

/// The changes of a run that are asked for, and those on record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extension {
    /// The keys that `--set` gives.
    asked: BTreeSet<&'static str>,
    /// New values that an earlier resumption from the same step recorded.
    on_record: BTreeMap<String, Json>,
}

impl Extension {
    /// What the command line asks for.
    pub fn asked(resolved: &ResolvedConfig) -> Self {
        let asked = KEYS.into_iter();
        Extension {
            asked: asked
                .filter(|key| matches!(resolved.origin(key), Origin::Set(_)))
                .collect(),
            on_record: BTreeMap::new(),
        }
    }

    /// With the changes that `resumptions`, as in `run.json`, record from step `step` on.
    pub fn recorded(mut self, resumptions: &[Json], step: u64) -> Self {
        let here = resumptions.iter().filter(|one| one["from_step"] == step);
        for change in here.flat_map(|one| one["changed"].as_array().into_iter().flatten()) {
            if let Some(key) = change["key"].as_str() {
                self.on_record.insert(key.to_owned(), change["to"].clone());
            }
        }
        self
    }

    /// Whether what is asked for differs from the record `run`.
    pub fn changes(&self, run: &Json, resolved: &ResolvedConfig) -> bool {
        let old = leaves(&completed_config(run));
        let new = |key: &str| match resolved.value(key) {
            Json::Null => None,
            value => Some(value.to_string()),
        };
        let mut asked = self.asked.iter().copied();
        asked.any(|key| old.get(key) != new(key).as_ref())
    }

    /// Removes from `found`, the differences of the configs of `old` and `new` in a run after
    /// `step` steps, those that are allowed. The others get a reason.
    pub fn judge(&self, found: &mut Vec<Difference>, old: &Json, new: &Json, step: u64) {
        let is_one = |key: &str| KEYS.contains(&key);
        if !found.iter().any(|one| is_one(&one.key)) {
            return;
        }
        let longer = longer_is_the_same(old, new, step);
        for one in found.iter_mut().filter(|one| is_one(&one.key)) {
            let is_end = HORIZON.contains(&one.key.as_str());
            one.reason = match (self.holds(one), is_end) {
                (true, _) => self.reaches(old, new, step).err(),
                (false, true) => longer.clone().err().map(|why| asking(&why, one)),
                (false, false) => Some(asking("a run keeps what it began with", one)),
            };
        }
        found.retain(|one| !is_one(&one.key) || one.reason.is_some());
    }

    fn holds(&self, difference: &Difference) -> bool {
        let recorded = self.on_record.get(&difference.key);
        self.asked.contains(difference.key.as_str())
            || recorded.is_some_and(|value| *value == difference.values()[1])
    }

    /// Whether the changed run has steps after `step`, as many as are asked for.
    fn reaches(&self, old: &Json, new: &Json, step: u64) -> Result<(), String> {
        let total = |run| total_steps(run).ok_or("the number of steps is not known");
        let (before, after) = (total(old)?, total(new)?);
        let run = &new["config"]["run"];
        let wanted = run["max_steps"].as_u64().filter(|most| *most > after);
        if let Some(most) = wanted.filter(|_| self.asked.contains("run.max_steps")) {
            let of_epoch = new["data"]["steps_per_epoch"].as_u64().unwrap_or(1).max(1);
            return Err(format!(
                "run.epochs = {} ends the run after {after} steps: give `--set run.epochs={}`, too",
                run["epochs"],
                most.div_ceil(of_epoch)
            ));
        }
        if after < before {
            return Err(format!(
                "a run of {before} steps cannot become one of {after}"
            ));
        }
        if step < after {
            return Ok(());
        }
        let ends = match run["max_steps"].as_u64() {
            Some(most) if most == after => "`--set run.max_steps=N`",
            _ => "`--set run.epochs=N`",
        };
        Err(format!(
            "the run of {after} steps has come to its end: {ends} makes it longer"
        ))
    }
}

/// `why`, and how the key of `difference` is changed from here on.
fn asking(why: &str, difference: &Difference) -> String {
    let (key, [_, new]) = (&difference.key, difference.values());
    match new {
        Json::Null => why.to_owned(),
        new => {
            let new = new.as_str().map_or_else(|| new.to_string(), str::to_owned);
            format!("{why}; to change it from here on, give `--set {key}={new}`")
        }
    }
}

/// The changed keys of two records, as an entry of `resumptions` keeps them.
pub(crate) fn changed(old: &Json, new: &Json) -> Vec<Json> {
    let (old, new) = (completed_config(old), completed_config(new));
    let value = |config: &Json, key: &str| {
        let place = format!("/{}", key.replace('.', "/"));
        config.pointer(&place).cloned().unwrap_or_default()
    };
    let pairs = KEYS.map(|key| (key, value(&old, key), value(&new, key)));
    let differing = pairs.into_iter().filter(|(_, from, to)| from != to);
    differing
        .map(|(key, from, to)| json!({ "key": key, "from": from, "to": to }))
        .collect()
}

/// What the changes `changed` of a run after `step` steps mean for its learning rate, in words.
pub(crate) fn consequence(changed: &[Json], old: &Json, new: &Json, step: u64) -> String {
    let shown = changed.iter().map(|one| {
        let key = one["key"].as_str().unwrap_or_default();
        let value = |value: &Json| match value {
            Json::Null => "unset".to_owned(),
            value => value.to_string(),
        };
        format!("{key} {} -> {}", value(&one["from"]), value(&one["to"]))
    });
    let shown: Vec<String> = shown.collect();
    let mut text = format!("from step {} on: {}", step + 1, shown.join(", "));
    let optim = |run: &Json| serde_json::from_value(completed_config(run)["optim"].clone());
    let (Ok(before), Ok(after)) = (optim(old), optim(new)) else {
        return text;
    };
    let rate = |optim: &OptimOptions, run, index| {
        optim::learning_rate(optim, index, total_steps(run).unwrap_or_default())
    };
    let differs = |index: &u64| rate(&before, old, *index) != rate(&after, new, *index);
    if (0..step).any(|index| differs(&index)) {
        text += &format!(
            "; the schedule is that of a run of {} steps with these settings, and step {} has the \
             learning rate {:.3e}; the steps before had others, so the result is not that of such \
             a run from its start",
            total_steps(new).unwrap_or_default(),
            step + 1,
            rate(&after, new, step)
        );
    }
    text
}

#[cfg(test)]
mod tests;
