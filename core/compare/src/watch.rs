//! Observers of a comparison.

use std::path::PathBuf;

use espalier_engine::observer::{Observer, Unobserved};

/// A run of a comparison, by its place in it.
#[derive(Clone, Debug)]
pub struct RunLabel {
    /// The arm's name.
    pub arm: String,
    /// The run's seed; `None` where the arm is only measured.
    pub seed: Option<u64>,
    /// Its output directory; `None` where the arm is only measured.
    pub directory: Option<PathBuf>,
    /// Its number, from 1.
    pub number: usize,
    /// All runs.
    pub total: usize,
}

/// Supplies an observer for every event.
pub trait Watch: Sync {
    /// The observer of events outside runs: reading, notes.
    fn whole(&self) -> &dyn Observer;

    /// The observer of a run.
    fn run(&self, label: RunLabel) -> Box<dyn Observer + '_>;
}

impl Watch for Unobserved {
    fn whole(&self) -> &dyn Observer {
        self
    }

    fn run(&self, _: RunLabel) -> Box<dyn Observer + '_> {
        Box::new(Unobserved)
    }
}
