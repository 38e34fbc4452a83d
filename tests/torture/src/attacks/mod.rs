//! All attacks, in the order of the suite.

mod calls;
mod damage;
mod disks;
mod inputs;
mod libraries;
mod moments;
mod mutants;
mod numbers;
pub mod power_cuts;
mod ranks;
mod signals;
mod starts;
mod streams;
pub mod swaps;

use crate::suite::Entry;

/// The suite. An hour makes at least the tries required of it.
pub const ENTRIES: [Entry; 26] = [
    Entry::new("kills-at-calls", 400, calls::Kills::prepare),
    Entry::new("kills-at-moments", 200, moments::Moments::prepare),
    Entry::new("errors-at-calls", 400, calls::Errors::prepare),
    Entry::new("power-cuts", 400, power_cuts::PowerCuts::prepare),
    Entry::new("swaps", 60, swaps::Swaps::prepare),
    Entry::alone("ranks", 60, ranks::Ranks::prepare),
    Entry::new("libraries", 120, libraries::Libraries::prepare),
    Entry::new("damage", 300, damage::Damage::prepare),
    Entry::new("disks", 100, disks::Disks::prepare),
    Entry::new("signals", 60, signals::Signals::prepare),
    Entry::new("streams", 60, streams::Streams::prepare),
    Entry::alone("starts", 30, starts::Starts::prepare),
    Entry::new("changed-inputs", 60, inputs::Inputs::prepare),
    Entry::new("not-finite", 100, numbers::Numbers::prepare),
    Entry::filling("mutants-safetensors", 10000, mutants::safetensors),
    Entry::filling("mutants-index", 10000, mutants::index),
    Entry::filling("mutants-config", 10000, mutants::config),
    Entry::filling("mutants-tokenizer", 10000, mutants::tokenizer),
    Entry::filling("mutants-adapter-config", 5000, mutants::adapter_config),
    Entry::filling("mutants-adapter-weights", 5000, mutants::adapter_weights),
    Entry::filling("mutants-run-config", 10000, mutants::run_config),
    Entry::filling("mutants-jsonl", 10000, mutants::jsonl),
    Entry::filling("mutants-parquet", 10000, mutants::parquet),
    Entry::filling("mutants-chat-template", 10000, mutants::chat_template),
    Entry::filling("mutants-checkpoint", 5000, mutants::checkpoint),
    Entry::filling(
        "mutants-checkpoint-weights",
        5000,
        mutants::checkpoint_weights,
    ),
];
