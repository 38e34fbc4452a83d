//! Refuses the first key that `--set` gives to a command and that the command does not read.
//!
//! Config files and the environment are shared by commands, and so may hold more keys.

use espalier_system::failure::UsageError;
use espalier_trainer::error::Error;

/// Keys that a command does not read: sections, which end in a point, and single keys.
pub struct Unread<'a> {
    /// The command's name on the command line.
    pub command: &'a str,
    /// The keys.
    pub keys: &'a [&'a [&'a str]],
    /// Keys of those sections that the command reads.
    pub but: &'a [&'a str],
}

/// Keys that only a comparison reads.
pub const COMPARISON: &[&str] = &["compare.", "arms"];
/// Keys that only training reads.
pub const TRAINING: &[&str] = &[
    "optim.",
    "run.epochs",
    "run.max_steps",
    "run.save_every",
    "run.keep_last",
    "run.eval_every",
    "run.stop_after_worse",
    "run.keep_best",
    "model.recompute",
    "data.eval_files",
    "data.eval_split",
    "data.split_seed",
    "data.shuffle",
];
/// Keys of rows alone.
pub const ROWS: &[&str] = &["data.", "run.eval_answers"];
/// Keys of ranks.
pub const RANKS: &[&str] = &[
    "run.ranks",
    "run.peer_timeout_secs",
    "run.join_timeout_secs",
    "run.device_collective",
    "sharding.",
    "collective.",
];
/// Keys of an output directory.
pub const OUTPUT: &[&str] = &["run.out"];
/// Keys of a model in memory.
pub const NUMBERS: &[&str] = &[
    "model.compute",
    "model.params",
    "model.gradients",
    "model.train_only",
    "model.keep_f32",
    "model.init",
];
/// Keys of adapters.
pub const ADAPTERS: &[&str] = &["model.adapter", "adapter."];
/// Keys of a model, its plugins and its runs.
pub const MODELS: &[&str] = &[
    "model.",
    "plugins",
    "sites",
    "run.backend",
    "run.devices",
    "run.seed",
];
/// The sections of plugins.
pub const SECTIONS: &[&str] = &[
    "quantizer.",
    "adapter.",
    "sharding.",
    "backend.",
    "collective.",
];

impl Unread<'_> {
    /// Refuses an assignment `key=value` of a key that the command does not read.
    ///
    /// # Errors
    /// [`Error::Usage`], naming the key and the command.
    pub fn refuse(&self, assignments: &[String]) -> Result<(), Error> {
        let keys = assignments
            .iter()
            .filter_map(|assignment| assignment.split_once('='));
        let mut keys = keys.map(|(key, _)| key.trim());
        match keys.find(|key| self.holds(key)) {
            None => Ok(()),
            Some(key) => Err(Error::Usage(UsageError {
                message: format!("`{key}` (--set) changes nothing of `host {}`", self.command),
                next_step: "leave it out: this command does not read it".to_owned(),
            })),
        }
    }

    fn holds(&self, key: &str) -> bool {
        let is_of = |one: &&str| match one.strip_suffix('.') {
            Some(section) => key == section || key.starts_with(*one),
            None => {
                key == *one
                    || key
                        .strip_prefix(*one)
                        .is_some_and(|rest| rest.starts_with('.'))
            }
        };
        self.keys.iter().any(|keys| keys.iter().any(&is_of)) && !self.but.contains(&key)
    }
}

#[cfg(test)]
mod tests;
