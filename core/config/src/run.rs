//! `[run]`: how long a run lasts, what it writes and what it runs on.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize};

/// The keys of `[run]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunOptions {
    /// Output directory (`--out`); must not hold a run already.
    pub out: Option<PathBuf>,
    /// Seed of every random number: order of rows, dropout, initial values.
    pub seed: u64,
    /// Passes over the training rows.
    pub epochs: u64,
    /// Optimizer steps after which the run ends, if the epochs have not ended it; 0 trains nothing
    /// and still writes its outputs.
    pub max_steps: Option<u64>,
    /// Steps between checkpoints.
    pub save_every: Option<u64>,
    /// Checkpoints kept, the newest ones.
    pub keep_last: u64,
    /// Steps between evaluations.
    pub eval_every: Option<u64>,
    /// Evaluations with no lower held-out loss than an earlier one, in a row, after which the run
    /// ends.
    pub stop_after_worse: Option<u64>,
    /// Writes the params of the step with the lowest held-out loss in place of the last step's, and
    /// keeps its checkpoint.
    pub keep_best: bool,
    /// Held-out rows that every evaluation also answers, greedily, to count exact matches; 0 unsets
    /// it.
    #[serde(deserialize_with = "unless_zero")]
    pub eval_answers: Option<u64>,
    /// The backend's name (`--backend`); unset: `cpu`.
    pub backend: Option<String>,
    /// Devices (`--devices`); empty: the backend's own choice.
    pub devices: Vec<String>,
    /// Rank threads of each process (`--ranks`); unset: one for each of `devices`.
    pub ranks: Option<u64>,
    /// The collective that works on the devices' own memory and streams; unset: ranks exchange by
    /// calls of the host.
    pub device_collective: Option<String>,
    /// Seconds without a sign of life after which a rank counts as lost, while others wait for it.
    pub peer_timeout_secs: u64,
    /// Seconds that a process waits for the others to begin: MPI's start, and until all have met.
    pub join_timeout_secs: u64,
    /// Worker threads (`--threads`); unset: one per core. Never changes a result.
    pub threads: Option<usize>,
    /// Folders searched first for plugin libraries (`--plugin-dir`).
    pub plugin_dirs: Vec<PathBuf>,
    /// SHA-256 of each plugin library that a run may load, by the plugin's name; empty: any library
    /// is loaded. `host plugins lock` writes it.
    pub plugin_hashes: BTreeMap<String, String>,
    /// Most GB of packed weights in the user's cache directory, from which later runs of a base
    /// take them; 0: none. Unset: a quarter of the free space, 100 at most, and only for calibrated
    /// quantizers and those that take longer than reading a weight.
    pub weight_cache_gb: Option<u64>,
    /// Uses plugin libraries that other users of this machine may write or replace.
    pub allow_world_writable_plugins: bool,
    /// Seconds that a plugin library has to open and make its components: when it is first tried,
    /// and in the run itself.
    pub probe_timeout_secs: u64,
    /// Seconds without a sign of progress after which a plugin's call ends the run; 0: never.
    pub plugin_timeout_secs: u64,
}

impl RunOptions {
    /// Keys that may differ where a run is resumed: they change no result.
    pub const RESUMABLE: [&str; 15] = [
        "out",
        "devices",
        "ranks",
        "threads",
        "save_every",
        "keep_last",
        "plugin_dirs",
        "plugin_hashes",
        "weight_cache_gb",
        "allow_world_writable_plugins",
        "probe_timeout_secs",
        "plugin_timeout_secs",
        "peer_timeout_secs",
        "join_timeout_secs",
        "device_collective",
    ];
    /// Keys that are no part of a run's identity.
    pub const WITHOUT_EFFECT: [&str; 12] = [
        "out",
        "threads",
        "plugin_dirs",
        "plugin_hashes",
        "weight_cache_gb",
        "allow_world_writable_plugins",
        "probe_timeout_secs",
        "plugin_timeout_secs",
        "peer_timeout_secs",
        "join_timeout_secs",
        "save_every",
        "keep_last",
    ];
    /// Keys that may differ between the processes of a run.
    pub const LOCAL: [&str; 8] = [
        "out",
        "threads",
        "plugin_dirs",
        "plugin_hashes",
        "weight_cache_gb",
        "allow_world_writable_plugins",
        "probe_timeout_secs",
        "plugin_timeout_secs",
    ];

    /// When a run writes its first checkpoint, in words.
    pub fn first_checkpoint(&self) -> String {
        match self.save_every {
            Some(steps) => format!("the first comes after step {steps} (run.save_every)"),
            None => "the only one comes with its last step or with Ctrl-C, as run.save_every is \
                     unset (`--set run.save_every=100` writes more on the way)"
                .to_owned(),
        }
    }
}

/// A count, of which 0 is none.
fn unless_zero<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let count = Option::<u64>::deserialize(deserializer)?;
    Ok(count.filter(|&count| count > 0))
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions {
            out: None,
            seed: 42,
            epochs: 1,
            max_steps: None,
            save_every: None,
            keep_last: 3,
            eval_every: None,
            stop_after_worse: None,
            keep_best: false,
            eval_answers: None,
            backend: None,
            devices: Vec::new(),
            ranks: None,
            device_collective: None,
            peer_timeout_secs: 8,
            join_timeout_secs: 300,
            threads: None,
            plugin_dirs: Vec::new(),
            plugin_hashes: BTreeMap::new(),
            weight_cache_gb: None,
            allow_world_writable_plugins: false,
            probe_timeout_secs: 10,
            plugin_timeout_secs: 900,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_checkpoint_is_told_with_the_key_that_decides_it() {
        let mut run = RunOptions::default();
        assert!(run.first_checkpoint().contains("run.save_every is unset"));
        run.save_every = Some(20);
        assert!(run.first_checkpoint().contains("after step 20 "));
    }
}
