//! What measures a run's base between the loading of its weights and its first step.

use espalier_data::Schedule;
use espalier_engine::executor::Executor;
use espalier_engine::load::{Inspector, LoadReport};
use espalier_engine::observer::Observer;
use espalier_plan::plan::RunPlan;
use espalier_system::stop::StopFlag;
use espalier_system::threads::HostServices;

use crate::Error;

/// Measures the base of a run that is loaded. A comparison does; a run alone is not measured.
pub trait BaseMeasure {
    /// Refuses a run that does not fit into memory while it is measured.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with both numbers.
    fn check(&self, plan: &RunPlan, services: &HostServices) -> Result<(), Error>;

    /// What looks at weights while they are encoded; none where nothing is to be found any more.
    fn inspector(&self, plan: &RunPlan, services: &'static HostServices) -> Option<&dyn Inspector>;

    /// Measures the loaded base; `report` says what loading did.
    ///
    /// # Errors
    /// What the backend reports; [`Error::NotFinite`]; [`Error::Interrupted`] after a signal; what
    /// cannot be written.
    fn measure(&self, base: &LoadedBase<'_>, report: LoadReport) -> Result<(), Error>;
}

/// A loaded model with its held-out rows.
#[derive(Clone, Copy)]
pub struct LoadedBase<'a> {
    /// The model, loaded. Where all of it is trained, before any step.
    pub executor: &'a Executor,
    /// The held-out rows.
    pub rows: &'a Schedule,
    /// Any seed: nothing depends on it.
    pub seed: u64,
    /// The host's threads.
    pub services: &'static HostServices,
    /// Watches.
    pub observer: &'a dyn Observer,
    /// Ends it.
    pub stop: &'a StopFlag,
}
