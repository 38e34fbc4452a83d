//! Measures an arm's base between the loading of its weights and its first step, and records it.

use std::cell::{OnceCell, RefCell};
use std::fs;
use std::path::Path;
use std::rc::Rc;

use espalier_engine::load::{Inspector, KeptWeights, LoadReport};
use espalier_interface::Services;
use espalier_plan::plan::RunPlan;
use espalier_system::files::write_error;
use espalier_system::memory;
use espalier_system::threads::HostServices;
use espalier_trainer::Error;
use espalier_trainer::train::{BaseMeasure, LoadedBase};

use super::base::{self, Against, Extra, Loaded};
use super::dense_baseline::DenseBaseline;
use super::record::arm_directory;
use super::weights::WeightErrors;

/// The measuring of one arm.
pub struct Measuring<'a> {
    pub out: &'a Path,
    pub arm: &'a str,
    /// The dense baseline, where there is a dense arm.
    pub dense_baseline: Option<&'a RefCell<DenseBaseline>>,
    /// Whether this is the dense arm.
    pub is_dense_baseline: bool,
    /// The measurement of weight errors during encoding, created on first use.
    pub errors: OnceCell<WeightErrors>,
    /// The arm's encoded weights, where they are kept between its runs.
    pub kept: Option<Rc<KeptWeights>>,
}

impl Measuring<'_> {
    fn is_on_record(&self) -> bool {
        base::read(self.out, self.arm).is_some()
    }
}

impl BaseMeasure for Measuring<'_> {
    fn inspector(&self, plan: &RunPlan, services: &'static HostServices) -> Option<&dyn Inspector> {
        let errors = || {
            self.errors
                .get_or_init(|| WeightErrors::new(plan, services))
        };
        (!self.is_on_record()).then(|| errors() as &dyn Inspector)
    }

    fn check(&self, plan: &RunPlan, services: &HostServices) -> Result<(), Error> {
        let needed = Extra::of(plan, services.threads()).needed(plan);
        Ok(plan.check_needed(needed, plan.available(memory::available_bytes()))?)
    }

    fn kept(&self) -> Option<&KeptWeights> {
        self.kept.as_deref()
    }

    /// An existing record is kept.
    fn measure(&self, subject: &LoadedBase<'_>, report: LoadReport) -> Result<(), Error> {
        let errors = self.errors.get().map(WeightErrors::take_found);
        let loaded = Loaded {
            report,
            errors: errors.unwrap_or_default(),
        };
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
}
