//! What measures an arm's base between the loading of its weights and its first step, and puts it on record.

use std::cell::RefCell;
use std::fs;
use std::path::Path;

use espalier_interface::Services;

use super::base::{self, Against, Extra, Loaded, Subject};
use super::dense_baseline::DenseBaseline;
use super::record::arm_directory;
use super::weights::WeightErrors;
use crate::Error;
use crate::files::write_error;
use crate::plan::RunPlan;
use crate::threads::HostServices;

/// The measuring of one arm.
#[derive(Clone, Copy)]
pub(crate) struct Measuring<'a> {
    pub out: &'a Path,
    pub arm: &'a str,
    /// What arms are held against, where there is a dense arm.
    pub dense_baseline: Option<&'a RefCell<DenseBaseline>>,
    /// Whether this is the dense arm.
    pub is_dense_baseline: bool,
}

impl Measuring<'_> {
    /// What looks at weights while they are encoded; nothing where what it finds is on record.
    pub fn inspector(
        &self,
        plan: &RunPlan,
        services: &'static HostServices,
    ) -> Option<WeightErrors> {
        (!self.is_on_record()).then(|| WeightErrors::new(plan, services))
    }

    /// Refuses a run that does not fit into memory while it is measured.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with both numbers.
    pub fn check(&self, plan: &RunPlan, services: &HostServices) -> Result<(), Error> {
        let peak = Extra::of(plan, services.threads()).peak(&plan.memory);
        plan.check_needed(peak - plan.memory.program, plan.available())
    }

    /// Measures a loaded base; what is on record stays.
    ///
    /// # Errors
    /// As [`base::measure`] and [`base::write`].
    pub fn measure(&self, subject: &Subject<'_>, loaded: Loaded) -> Result<(), Error> {
        let known = self.is_on_record();
        let measured = match (self.dense_baseline, self.is_dense_baseline) {
            (Some(dense_baseline), true) if known => {
                return base::measure_dense_baseline(subject, &mut dense_baseline.borrow_mut());
            }
            _ if known => return Ok(()),
            (Some(dense_baseline), true) => {
                let mut dense_baseline = dense_baseline.borrow_mut();
                base::measure(subject, loaded, Against::Itself(&mut dense_baseline))?
            }
            (Some(dense_baseline), false) if dense_baseline.borrow().is_measured() => {
                base::measure(subject, loaded, Against::Dense(&dense_baseline.borrow()))?
            }
            _ => base::measure(subject, loaded, Against::Nothing)?,
        };
        let folder = arm_directory(self.out, self.arm);
        fs::create_dir_all(&folder).map_err(|error| write_error(&folder, 0, error))?;
        base::write(self.out, self.arm, &measured)
    }

    fn is_on_record(&self) -> bool {
        base::read(self.out, self.arm).is_some()
    }
}
