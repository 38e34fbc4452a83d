//! Refuses values out of their range and pairs of values that do not go together.

use std::cell::RefCell;
use std::fmt::Display;

use espalier_data::DataError;
use espalier_interface::optimizer::{OptimizerSpec, Setting};
use espalier_system::threads::MAX_THREADS;

use super::ResolvedConfig;
use crate::faults::Faults;
use crate::{ComputeType, Config, ConfigError, OptimOptions, ParamType};

/// Longest of the times that a config sets: 31 years.
const MAX_SECS: u64 = 1_000_000_000;

/// Rank threads of a process at most: far more than a machine has devices.
const MAX_RANKS: u64 = 1024;

/// Characters of a SHA-256 in hexadecimal.
const SHA256_DIGITS: usize = 64;

/// A config, and the rules that it breaks so far.
struct Checked<'a> {
    resolved: &'a ResolvedConfig,
    faults: RefCell<&'a mut Faults>,
}

/// Checks every rule that holds for all plugins.
pub(super) fn check(resolved: &ResolvedConfig, faults: &mut Faults) {
    let checked = &Checked {
        resolved,
        faults: RefCell::new(faults),
    };
    run(checked);
    let seeds = resolved.config().compare.seeds;
    checked.range("compare.seeds", seeds, seeds >= 1, "1 or more");
    data(checked);
    optim(checked);
}

fn run(checked: &Checked<'_>) {
    let run = &checked.config().run;
    checked.range(
        "run.seed",
        run.seed,
        i64::try_from(run.seed).is_ok(),
        "below 2^63",
    );
    if let Some(seed) = checked.config().data.split_seed {
        let key = "data.split_seed";
        checked.range(key, seed, i64::try_from(seed).is_ok(), "below 2^63");
    }
    checked.range("run.epochs", run.epochs, run.epochs >= 1, "1 or more");
    checked.range(
        "run.keep_last",
        run.keep_last,
        run.keep_last >= 1,
        "1 or more",
    );
    for (plugin, hash) in &run.plugin_hashes {
        let is_hash = hash.len() == SHA256_DIGITS && hash.bytes().all(is_hex_digit);
        let key = format!("run.plugin_hashes.{plugin}");
        let expected =
            "a SHA-256: 64 digits and letters from a to f, as `host plugins lock` writes it";
        checked.range(&key, format!("`{hash}`"), is_hash, expected);
    }
    checked.counts("run.save_every", run.save_every);
    checked.counts("run.eval_every", run.eval_every);
    checked.counts("run.stop_after_worse", run.stop_after_worse);
    let by_held_out_loss = [
        ("run.stop_after_worse", run.stop_after_worse.is_some()),
        ("run.keep_best", run.keep_best),
    ];
    let needing = by_held_out_loss.iter().find(|(_, is_set)| *is_set);
    if let Some((key, _)) = needing.filter(|_| run.eval_every.is_none()) {
        let rule = "the held-out loss decides, and run.eval_every says how often it is measured";
        checked.conflict(key, "run.eval_every", rule.to_owned());
    }
    if let Some(threads) = run.threads {
        let counts = (1..=MAX_THREADS).contains(&threads);
        let expected = format!("from 1 to {MAX_THREADS}, or left out");
        checked.range("run.threads", threads, counts, &expected);
    }
    for (key, secs) in [
        ("run.probe_timeout_secs", run.probe_timeout_secs),
        ("run.peer_timeout_secs", run.peer_timeout_secs),
        ("run.join_timeout_secs", run.join_timeout_secs),
    ] {
        let is_time = (1..=MAX_SECS).contains(&secs);
        checked.range(key, secs, is_time, &format!("from 1 to {MAX_SECS}"));
    }
    if let Some(ranks) = run.ranks {
        let counts = (1..=MAX_RANKS).contains(&ranks);
        checked.range(
            "run.ranks",
            ranks,
            counts,
            &format!("from 1 to {MAX_RANKS}"),
        );
    }
}

fn is_hex_digit(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

fn data(checked: &Checked<'_>) {
    let data = &checked.config().data;
    if data.eval_split.is_some() && !data.eval_files.is_empty() {
        let rule = "rows are held out from the one or read from the other".to_owned();
        checked.conflict("data.eval_split", "data.eval_files", rule);
    }
    if let Err(error) = data.validate() {
        checked.add(&[], checked.resolved.unusable_data(error));
    }
    let (batch, micro) = (data.batch_size, data.micro_batch);
    if micro > batch && data.pack_tokens.is_none() {
        let rule = format!("a step of {batch} sequences holds no micro-batch of {micro}");
        checked.conflict("data.micro_batch", "data.batch_size", rule);
    }
    let every = checked.config().run.eval_every;
    let nothing_to_evaluate = data.eval_split.is_none() && data.eval_files.is_empty();
    if let Some(steps) = every.filter(|_| nothing_to_evaluate) {
        let fault = ConfigError::Value {
            key: "run.eval_every".into(),
            expected: "unset where neither data.eval_files nor data.eval_split is given".into(),
            found: steps.to_string(),
            origin: Box::new(checked.resolved.origin("run.eval_every")),
        };
        let of = ["run.eval_every", "data.eval_files", "data.eval_split"];
        checked.add(&of, fault);
    }
}

fn optim(checked: &Checked<'_>) {
    let optim = &checked.config().optim;
    let rate = optim.learning_rate;
    checked.range("optim.learning_rate", rate, rate > 0.0, "above 0");
    settings(checked);
    for (index, group) in optim.groups.iter().enumerate() {
        for (name, number) in [
            ("learning_rate", group.learning_rate),
            ("weight_decay", group.weight_decay),
        ] {
            let number = number.unwrap_or(0.0);
            let holds = number >= 0.0 && number.is_finite();
            let key = format!("optim.groups.{index}.{name}");
            checked.range(&key, number, holds, "0 or more");
        }
    }
    let (decay, clip_norm, floor) = (optim.weight_decay, optim.clip_norm, optim.floor);
    checked.range("optim.weight_decay", decay, decay >= 0.0, "0 or more");
    checked.range(
        "optim.clip_norm",
        clip_norm,
        clip_norm >= 0.0,
        "0 (off) or more",
    );
    if optim.in_backward && clip_norm > 0.0 {
        let rule = format!(
            "the norm of all gradients, which clips to {clip_norm}, is known after the backward pass only; set \
             optim.clip_norm = 0, or optim.in_backward = false"
        );
        checked.conflict("optim.in_backward", "optim.clip_norm", rule);
    }
    numbers(checked);
    checked.range(
        "optim.floor",
        floor,
        (0.0..=1.0).contains(&floor),
        "from 0 to 1",
    );
    if let Some(ratio) = optim.warmup_ratio {
        let inside = (0.0..=1.0).contains(&ratio);
        checked.range("optim.warmup_ratio", ratio, inside, "from 0 to 1");
        if optim.warmup_steps > 0 {
            let rule = format!(
                "the warm-up lasts {} steps or {ratio} of all, not both",
                optim.warmup_steps
            );
            checked.conflict("optim.warmup_ratio", "optim.warmup_steps", rule);
        }
    }
}

/// Checks the number types of gradients, state and params against each other.
fn numbers(checked: &Checked<'_>) {
    let (model, optim) = (&checked.config().model, &checked.config().optim);
    if model.gradients == ParamType::Bf16 && model.compute != ComputeType::Bf16 {
        let rule = "gradients of bf16 come of products of bf16; set model.compute = \"bf16\", or \
                    model.gradients = \"f32\"";
        checked.conflict("model.gradients", "model.compute", rule.to_owned());
    }
    if optim.state == ParamType::Bf16 && optim.name == "adamw8bit" {
        let rule = "`adamw8bit` keeps 8-bit codes, and of small parameters f32; set optim.state = \
                    \"f32\", or optim.name = \"adamw\"";
        checked.conflict("optim.state", "optim.name", rule.to_owned());
    }
    for (key, is_set) in [
        ("optim.state", optim.state == ParamType::Bf16),
        ("optim.stochastic_rounding", optim.stochastic_rounding),
    ] {
        if is_set && model.compute == ComputeType::F64 {
            let rule = format!("the reference mode keeps all in f64; leave {key} out");
            checked.conflict(key, "model.compute", rule);
        }
    }
    if optim.stochastic_rounding && model.params == ParamType::F32 {
        let rule = "parameters of f32 are not rounded to fewer bits; set model.params = \"bf16\", or \
                    optim.stochastic_rounding = false";
        checked.conflict("optim.stochastic_rounding", "model.params", rule.to_owned());
    }
}

/// Checks the keys that the optimizer has, and refuses those that only another one has.
fn settings(checked: &Checked<'_>) {
    let optim = &checked.config().optim;
    let shipped = OptimizerSpec::shipped();
    let names: Vec<String> = shipped
        .iter()
        .map(|one| format!("`{}`", one.name))
        .collect();
    let Some(spec) = shipped.iter().find(|one| one.name == optim.name) else {
        let expected = match &names[..] {
            [name] => name.clone(),
            names => format!("one of {}", names.join(", ")),
        };
        checked.range("optim.name", &optim.name, false, &expected);
        return;
    };
    for setting in &spec.settings {
        setting_of(checked, setting);
    }
    let default = OptimOptions::default();
    for other in &shipped {
        let has = |key: &str| spec.settings.iter().any(|setting| setting.key == key);
        for Setting { key, .. } in other.settings.iter().filter(|one| !has(&one.key)) {
            if optim.numbers(key) != default.numbers(key) {
                let rule = format!("`{key}` is of `{}`, this is `{}`", other.name, spec.name);
                checked.conflict(&format!("optim.{key}"), "optim.name", rule);
            }
        }
    }
}

/// Checks a key of the optimizer.
fn setting_of(checked: &Checked<'_>, setting: &Setting) {
    let optim = &checked.config().optim;
    let key = format!("optim.{}", setting.key);
    let expected = match &setting.scalars[..] {
        [_] => setting.bounds.to_string(),
        _ => format!("{}, each", setting.bounds),
    };
    let zero = |numbers: Vec<f64>| numbers.iter().all(|number| *number == 0.0);
    let numbers = optim.numbers(&setting.key);
    for number in &numbers {
        checked.range(&key, number, setting.bounds.hold(*number), &expected);
    }
    if let Some(needed) = &setting.needs
        && !zero(numbers)
        && zero(optim.numbers(needed))
    {
        let rule = format!("`{}` needs `{needed}` above 0", setting.key);
        checked.conflict(&key, &format!("optim.{needed}"), rule);
    }
}

impl ResolvedConfig {
    /// The section's own verdict, with the origin of the key it is about.
    fn unusable_data(&self, error: DataError) -> ConfigError {
        let (key, expected, found) = match error {
            DataError::Option {
                key,
                expected,
                found,
            } => (format!("data.{key}"), expected, found),
            DataError::UnknownField {
                found,
                nearest,
                known,
            } => {
                return ConfigError::UnknownKey {
                    origin: Box::new(self.origin(&format!("data.fields.{found}"))),
                    key: found,
                    section: "[data.fields]".into(),
                    nearest: Some(nearest),
                    known: known.split(", ").map(str::to_owned).collect(),
                };
            }
            other => ("data".into(), "usable".into(), other.to_string()),
        };
        ConfigError::Value {
            origin: Box::new(self.origin(&key)),
            key,
            expected,
            found,
        }
    }
}

impl Checked<'_> {
    fn config(&self) -> &Config {
        self.resolved.config()
    }

    /// Adds a fault that comes of the values of `keys`.
    fn add(&self, keys: &[&str], fault: ConfigError) {
        self.faults.borrow_mut().add_of(keys, fault);
    }

    fn range(&self, key: &str, found: impl Display, holds: bool, expected: &str) {
        if holds {
            return;
        }
        let fault = ConfigError::Value {
            key: key.into(),
            expected: expected.into(),
            found: found.to_string(),
            origin: Box::new(self.resolved.origin(key)),
        };
        self.faults.borrow_mut().add_value(key, fault);
    }

    fn counts(&self, key: &str, count: Option<u64>) {
        if let Some(count) = count {
            self.range(key, count, count >= 1, "1 or more, or left out");
        }
    }

    fn conflict(&self, key: &str, other: &str, rule: String) {
        let fault = ConfigError::Conflict {
            key: key.into(),
            origin: Box::new(self.resolved.origin(key)),
            other: other.into(),
            other_origin: Box::new(self.resolved.origin(other)),
            rule,
        };
        self.add(&[key, other], fault);
    }
}
