//! The keys that `--set` gives a command -> all of them ones that it reads, or a refusal of the
//! first that it does not.
//!
//! Config files and the environment are shared by commands, and so may say more.

use espalier_system::failure::UsageError;
use espalier_trainer::error::Error;

/// Keys that a command does not read: sections, which end in a point, and single keys.
pub struct Unread<'a> {
    /// The command, as it is called.
    pub command: &'a str,
    /// The keys.
    pub keys: &'a [&'a [&'a str]],
    /// Keys of those sections that it reads all the same.
    pub but: &'a [&'a str],
}

/// What only a comparison reads.
pub const COMPARISON: &[&str] = &["compare.", "arms"];
/// What only training reads.
pub const TRAINING: &[&str] = &[
    "optim.",
    "run.epochs",
    "run.max_steps",
    "run.save_every",
    "run.keep_last",
    "run.eval_every",
    "model.recompute",
    "data.eval_files",
    "data.eval_split",
    "data.split_seed",
    "data.shuffle",
];
/// What is of rows and of nothing else.
pub const ROWS: &[&str] = &["data.", "run.eval_answers"];
/// What is of ranks.
pub const RANKS: &[&str] = &[
    "run.ranks",
    "run.peer_timeout_secs",
    "run.join_timeout_secs",
    "sharding.",
    "collective.",
];
/// What is of a directory to write.
pub const OUTPUT: &[&str] = &["run.out"];
/// What is of a model in memory.
pub const NUMBERS: &[&str] = &[
    "model.compute",
    "model.params",
    "model.keep_f32",
    "model.init",
];
/// What is of adapters.
pub const ADAPTERS: &[&str] = &["model.adapter", "adapter."];
/// What is of a model, its plugins and its runs.
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
