//! Measurement of a run's base between the loading of its weights and its first step.

use espalier_data::BatchSchedule;
use espalier_engine::load::{Inspector, KeptWeights, LoadReport};
use espalier_engine::observer::Observer;
use espalier_engine::team::Team;
use espalier_plan::plan::RunPlan;
use espalier_system::stop::StopFlag;
use espalier_system::threads::HostServices;

use crate::Error;

/// Measures the base of a loaded run. Used by comparisons only.
pub trait BaseMeasure {
    /// Refuses a run whose measurement does not fit into memory.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with both numbers.
    fn check(&self, plan: &RunPlan, services: &HostServices) -> Result<(), Error>;

    /// The inspector of weights during encoding; `None` where they are measured already.
    fn inspector(&self, plan: &RunPlan, services: &'static HostServices) -> Option<&dyn Inspector>;

    /// The weights that an earlier run of the same base encoded, where they are kept.
    fn kept(&self) -> Option<&KeptWeights>;

    /// Measures the loaded base; `report` is the report of its loading.
    ///
    /// # Errors
    /// Errors of the backend; [`Error::NotFinite`]; [`Error::Interrupted`] after a signal;
    /// [`Error::File`] for a failed write.
    fn measure(&self, base: &LoadedBase<'_>, report: LoadReport) -> Result<(), Error>;
}

/// A loaded model with its held-out rows.
#[derive(Clone, Copy)]
pub struct LoadedBase<'a> {
    /// The ranks of the loaded model; for full fine-tuning, before any step.
    pub team: &'a Team,
    /// The held-out rows.
    pub rows: &'a BatchSchedule,
    /// Any seed: the result does not depend on it.
    pub seed: u64,
    /// The host's threads.
    pub services: &'static HostServices,
    /// Receives events.
    pub observer: &'a dyn Observer,
    /// Requests a stop.
    pub stop: &'a StopFlag,
}
