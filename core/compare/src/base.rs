//! A loaded arm and the held-out rows -> the record of its base, which does not depend on a seed.

use std::path::Path;

use espalier_compile::params::Param;
use espalier_engine::executor::disabled_adapter_bytes;
use espalier_engine::load::LoadReport;
use espalier_engine::observer::Event;
use espalier_engine::step::{EvalOutcome, Look};
use espalier_plan::plan::RunPlan;
use espalier_system::failure::UsageError;
use espalier_system::files::{FileKind, read_object, write_json};
use espalier_trainer::Error;
use espalier_trainer::evaluate::packed;
use espalier_trainer::train::{HeldOut, LoadedBase};

use super::dense_baseline::{DenseBaseline, block_bytes};
use super::divergence::{Comparer, Recorder};
use super::record::{Base, Divergence, WeightError, base_file};
use super::weights::WeightErrors;

/// The results of loading an arm.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The report of loading.
    pub report: LoadReport,
    /// The weight errors that [`WeightErrors`] measured during loading.
    pub errors: Vec<WeightError>,
}

/// The relation of an arm to the dense baseline.
pub enum Against<'a> {
    /// There is no dense baseline.
    Nothing,
    /// It is the dense arm: its predictions are kept there.
    Itself(&'a mut DenseBaseline),
    /// It is compared with the predictions kept there.
    Dense(&'a DenseBaseline),
}

/// Memory of measuring in addition to a run's plan, of all ranks of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// Bytes while weights are loaded: the decoded parts.
    pub loading: u64,
    /// Bytes while the held-out rows are evaluated: blocks of logits, and saved values of the
    /// adapter.
    pub measuring: u64,
}

/// Measures an arm's base: the loaded model without the effect of its adapter, new or trained.
///
/// # Errors
/// [`Error::NotFinite`] for a loss that is not a number; a dense baseline that was not measured, or
/// measured on other rows; a failure of the backend; [`Error::Interrupted`] after a signal.
pub fn measure(
    subject: &LoadedBase<'_>,
    loaded: Loaded,
    against: Against<'_>,
) -> Result<Base, Error> {
    let executor = subject.team.first();
    let (divergence, outcome) = match against {
        Against::Nothing => (None, evaluate(subject, &|_| Ok(()))?),
        Against::Itself(dense_baseline) => (None, keep(subject, dense_baseline)?),
        Against::Dense(dense_baseline) => diverging(subject, dense_baseline)?,
    };
    let params = executor.params();
    let (packed_bytes, packed_weights) = packed(params).unwrap_or((0, 0));
    let Loaded { report, errors } = loaded;
    // Calibrated weights of the cache are inspected like those that were encoded.
    let encoded = report.encoded + report.cached;
    if packed_weights > 0 && encoded == 0 {
        let note = "the files hold packed weights: the weight error needs the dense ones";
        subject.observer.observe(&Event::Note(note));
    }
    let frozen = || {
        params
            .iter()
            .filter(|param| param.kind.is_some() && !param.trainable)
    };
    Ok(Base {
        vocab: executor.logits_row_bytes()? / executor.logits_dtype().bytes(),
        packed_weights,
        packed_bytes,
        frozen_weights: frozen().map(Param::elements).sum(),
        frozen_bytes: frozen().flat_map(Param::segment_bytes).sum(),
        encoded,
        encode_secs: report.encode_nanos as f64 * 1e-9,
        weights: errors,
        divergence,
        held_out: Some(HeldOut {
            step: 0,
            documents: outcome.documents,
        }),
    })
}

/// The divergence of a base's predictions from those of the dense base, and its own losses.
///
/// # Errors
/// As [`measure`].
pub(crate) fn diverging(
    subject: &LoadedBase<'_>,
    dense_baseline: &DenseBaseline,
) -> Result<(Option<Divergence>, EvalOutcome), Error> {
    let kept = dense_baseline.kept.as_ref().ok_or_else(unmeasured)?;
    let comparer = Comparer::new(kept, subject.team.first(), subject.services)?;
    let outcome = evaluate(subject, &|shown| comparer.take(shown))?;
    Ok((comparer.finish(&outcome)?, outcome))
}

/// Measures only the dense arm's predictions, where its base is on record but the predictions of an
/// earlier process are lost.
///
/// # Errors
/// As [`measure`].
pub fn measure_dense_baseline(
    subject: &LoadedBase<'_>,
    dense_baseline: &mut DenseBaseline,
) -> Result<(), Error> {
    keep(subject, dense_baseline).map(|_| ())
}

/// Whether arms still need the dense baseline and it is not measured. `arms` are those with their
/// own base. The dense arm must then be loaded for [`measure_dense_baseline`], unless [`measure`]
/// runs on it anyway.
pub fn needs_dense_baseline<'a>(
    dense_baseline: &DenseBaseline,
    out: &Path,
    mut arms: impl Iterator<Item = &'a str>,
) -> bool {
    !dense_baseline.is_measured() && arms.any(|arm| read(out, arm).is_none())
}

/// The recorded base of `arm` in the output directory `out`; `None` where it is missing or
/// incomplete.
pub fn read(out: &Path, arm: &str) -> Option<Base> {
    let object = read_object(&base_file(out, arm), FileKind::Measurements).ok()?;
    serde_json::from_value(object).ok()
}

/// Records the base of `arm` atomically.
///
/// # Errors
/// A directory that cannot be written, a full disk.
pub fn write(out: &Path, arm: &str, base: &Base) -> Result<(), Error> {
    let value = serde_json::to_value(base).expect("a base is plain data");
    Ok(write_json(&base_file(out, arm), &value)?)
}

impl Extra {
    /// The memory of measuring in addition to `plan`, on `threads` threads.
    pub fn of(plan: &RunPlan, threads: usize) -> Self {
        let logits = plan.program.units.last().and_then(|head| head.logits);
        let row_bytes = logits.map_or(0, |place| place.extent.bytes(1, 0));
        let dtype = plan.dtypes.compute;
        let ranks = u64::from(plan.demand.world.ranks_per_process());
        let blocks = block_bytes(row_bytes, dtype, threads);
        Extra {
            loading: WeightErrors::bytes(plan, threads),
            measuring: ranks * (blocks + disabled_adapter_bytes(&plan.params)),
        }
    }

    /// Bytes that a run of `plan` with measuring needs, beyond what the program holds already.
    pub fn needed(&self, plan: &RunPlan) -> u64 {
        if !plan.is_alone() {
            return plan.needed() + self.loading.max(self.measuring);
        }
        let memory = &plan.memory;
        let loading = memory.loading_peak() + self.loading;
        let peak = loading.max(memory.step_peak() + self.measuring);
        peak - memory.program
    }
}

/// Evaluates the dense base and keeps its predictions.
fn keep(
    subject: &LoadedBase<'_>,
    dense_baseline: &mut DenseBaseline,
) -> Result<EvalOutcome, Error> {
    let started = dense_baseline.start(subject.team.first(), subject.rows)?;
    let recorder = Recorder::new(started);
    let outcome = evaluate(subject, &|shown| recorder.take(shown))?;
    dense_baseline.kept = Some(recorder.finish());
    Ok(outcome)
}

/// Evaluates the base alone; `look` receives its logits and their rows, from several ranks at
/// once.
fn evaluate(subject: &LoadedBase<'_>, look: Look<'_>) -> Result<EvalOutcome, Error> {
    let LoadedBase {
        team,
        rows,
        seed,
        observer,
        stop,
        ..
    } = *subject;
    let total = rows.total_steps();
    let mut after = |done| {
        observer.observe(&Event::EvalProgress { done, total });
        Ok(stop.check()?)
    };
    let evaluated = team.without_adapter(|| {
        let outcome = team.evaluate_looking(rows, seed, look, &mut after)?;
        if outcome.loss.is_finite() {
            Ok(outcome)
        } else {
            Err(team.evaluation_not_finite(rows, seed))
        }
    })?;
    Ok(evaluated)
}

fn unmeasured() -> Error {
    Error::Usage(UsageError {
        message: "the dense arm was not measured, so no arm can be compared with it".to_owned(),
        next_step: "see why it failed, or compare without it".to_owned(),
    })
}
