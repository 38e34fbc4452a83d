//! `[compare]` and `[[arms]]`: what is trained on the same batches, and how often.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Section;

/// The keys of `[compare]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompareOptions {
    /// Arms in short (`--arms`): a component's name, with options after colons: `nf4`,
    /// `nf4:block_size=128`.
    pub arms: Vec<String>,
    /// Runs of each arm, under as many seeds from `run.seed` on (`--seeds`).
    pub seeds: u64,
    /// The order of the arms' steps (`--schedule`); unset: interleaved where all arms fit into
    /// memory together.
    pub schedule: Option<Turns>,
    /// Whether an arm without a quantizer is added where none is given.
    pub dense: bool,
    /// Whether nothing is trained (`--eval-only`).
    pub eval_only: bool,
    /// Table of measured bits (`--bits`): beside each of `arms` that is an option of it, the bits
    /// chosen for the same memory are an arm.
    pub bits: Option<PathBuf>,
}

/// The order in which the runs of a comparison do their steps; no result depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Turns {
    /// All arms of a seed are in memory and do a step each in turn.
    Interleaved,
    /// One run after the other.
    Sequential,
}

/// One `[[arms]]` entry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ArmOptions {
    /// Its name, also of its folder.
    pub name: String,
    /// Components: each takes the place of the run's of its role, or is added.
    #[serde(default)]
    pub plugins: Vec<String>,
    /// Sections laid over the config.
    #[serde(flatten)]
    pub sections: Section,
}

impl Default for CompareOptions {
    fn default() -> Self {
        CompareOptions {
            arms: Vec::new(),
            seeds: 3,
            schedule: None,
            dense: true,
            eval_only: false,
            bits: None,
        }
    }
}

impl Turns {
    /// Its name in the config.
    pub fn name(self) -> &'static str {
        match self {
            Turns::Interleaved => "interleaved",
            Turns::Sequential => "sequential",
        }
    }
}
