//! Comparison of several arms on the same batches.
//!
//! A run is one arm under one seed. It equals `host train` with the arm's config: the same code,
//! the same files, the same bits.

mod arms;
pub mod base;
pub mod bits;
mod command;
pub mod dense_baseline;
mod divergence;
pub mod error;
mod failure;
mod kept_bases;
mod measuring;
mod plans;
pub mod record;
pub mod report;
mod runs;
pub mod statistics;
mod watch;
pub mod weights;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::path::{Path, PathBuf};

use espalier_config::{ResolvedConfig, Turns};
use espalier_engine::observer::Observer;
use espalier_engine::ranks::world_of_run;
use espalier_interface::bytes::Bytes;
use espalier_plan::plan::Purpose;
use espalier_registry::{Registry, SearchPath};
use espalier_system::failure::{UsageError, chain};
use espalier_system::files::{self, COMPARISON, Continue, FileKind, RunDirectory, RunState};
use espalier_system::memory;
use espalier_system::stop::StopFlag;
use espalier_trainer::checkpoint::{
    CONFIG_VERSION, CheckpointError, ResumeFrom, as_begun, config_version, tree_differences,
};
use espalier_trainer::session::ProcessContext;
use serde_json::{Value as Json, json};

pub use arms::DENSE;
pub use error::Error;
pub use failure::{ArmFailure, ArmsFailed, ComparisonStopped};
pub use watch::{RunLabel, Watch};

use dense_baseline::DenseBaseline;
use kept_bases::KeptBases;
use plans::{Planned, Planning};
use record::{Arm, Comparison};
use runs::Runs;

/// Compares the arms that the config names, in its output directory.
///
/// # Errors
/// Errors of the comparison as a whole; [`Error::Stopped`] after a signal, once every run is saved.
/// Failures of single runs are in the result.
pub fn run(
    resolved: &ResolvedConfig,
    existing: Continue,
    watch: &dyn Watch,
    stop: &StopFlag,
) -> Result<Comparison, Error> {
    let out = resolved.config().run.out.as_deref();
    let out = out.ok_or_else(|| {
        Error::Usage(UsageError {
            message: "no output directory was given".to_owned(),
            next_step: "name one with --out DIR".to_owned(),
        })
    })?;
    if existing == Continue::Refuse {
        RunDirectory::refuse_taken(out)?;
    }
    let config_version = match existing {
        Continue::Resume => version_on_record(out),
        Continue::Refuse => CONFIG_VERSION,
    };
    let resolved = &as_begun(resolved, config_version, watch.whole())?;
    let mut ready = Ready::of(resolved, existing, watch.whole(), stop)?;
    ready.refuse_idle()?;
    let directory = RunDirectory::claim_comparison(out, existing)?;
    let record = Comparison {
        config_version,
        ..ready.record()?
    };
    let resumed = directory.state() == RunState::Comparison;
    if resumed {
        refuse_another(out, &record)?;
    }
    let has_dense_baseline = record.dense_baseline.is_some();
    let runs = Runs {
        out,
        planned: &ready.planned,
        process_context: &ready.process_context,
        held_out: &ready.held_out,
        watch,
        stop,
        bare_bytes: memory::resident_bytes(),
        from: resumed.then_some(ResumeFrom::Newest),
        dense_baseline: has_dense_baseline.then(|| {
            RefCell::new(DenseBaseline::new(
                &resolved.config().data.cache_directory(),
            ))
        }),
        kept: KeptBases::new(out),
        done: Cell::new(0),
        started: RefCell::default(),
        record: RefCell::new(record),
    };
    runs.write()?;
    for (arm, planned) in ready.planned.iter().enumerate() {
        if let Some(error) = &planned.refused {
            runs.fail(arm, None, 0, error)?;
        }
    }
    let ended = if ready.eval_only {
        runs.measure()
    } else {
        runs.train(ready.turns)
    };
    report::conclude(out, watch.whole());
    ended?;
    if let Some(signal) = stop.requested()
        && runs.done.get() < runs.total()
    {
        return Err(Error::Stopped(ComparisonStopped {
            signal,
            done: runs.done.get(),
            runs: runs.total(),
            command: None,
        }));
    }
    Ok(runs.record.into_inner())
}

/// A preview of a comparison: its arms and the plan of each.
///
/// # Errors
/// As [`run`] before its first write.
pub fn preview(
    resolved: &ResolvedConfig,
    observer: &dyn Observer,
    stop: &StopFlag,
) -> Result<Preview, Error> {
    let ready = Ready::of(resolved, Continue::Refuse, observer, stop)?;
    let compare = &resolved.config().compare;
    let keeps = ready.seeds.len() > 1 && !ready.eval_only;
    let arms = ready.planned.iter().map(|planned| PlannedArm {
        name: planned.arm.name.clone(),
        changes: changes(planned),
        peak: Bytes(planned.peak),
        kept: Bytes(if keeps { planned.kept_bytes } else { 0 }),
        refused: planned.refused.as_ref().map(|error| chain(error)),
    });
    Ok(Preview {
        arms: arms.collect(),
        turns: ready.turns,
        seeds: ready.seeds,
        eval_only: compare.eval_only,
    })
}

/// A comparison before it starts.
#[derive(Clone, Debug)]
pub struct Preview {
    /// Its arms.
    pub arms: Vec<PlannedArm>,
    /// The order of their steps.
    pub turns: Turns,
    /// The seeds of their runs.
    pub seeds: Vec<u64>,
    /// Whether nothing is trained.
    pub eval_only: bool,
}

/// An arm before it starts.
#[derive(Clone, Debug)]
pub struct PlannedArm {
    /// Its name.
    pub name: String,
    /// Its changes, `key = value`.
    pub changes: Vec<String>,
    /// Its peak memory.
    pub peak: Bytes,
    /// Disk space of its encoded weights between its runs.
    pub kept: Bytes,
    /// Why it cannot run.
    pub refused: Option<String>,
}

impl Comparison {
    /// The failures of runs as an error, if any.
    ///
    /// # Errors
    /// [`Error::ArmsFailed`].
    pub fn check_failures(&self) -> Result<(), Error> {
        let seeds = if self.eval_only { 1 } else { self.seeds.len() };
        let of = |arm: &Arm| {
            if arm.failures.iter().any(|failure| failure.seed.is_none()) {
                seeds
            } else {
                arm.failures.len()
            }
        };
        let first = self
            .arms
            .iter()
            .find_map(|arm| Some((arm, arm.failures.first()?)));
        match first {
            None => Ok(()),
            Some((arm, failure)) => Err(Error::ArmsFailed(ArmsFailed {
                failed: self.arms.iter().map(of).sum(),
                runs: self.arms.len() * seeds,
                arm: arm.name.clone(),
                message: failure.message.clone(),
            })),
        }
    }
}

impl fmt::Display for Preview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for arm in &self.arms {
            let changes = match arm.changes.as_slice() {
                [] => "the config as it is".to_owned(),
                changes => changes.join(", "),
            };
            match &arm.refused {
                None => {
                    let disk = match arm.kept {
                        Bytes(0) => String::new(),
                        kept => format!(", {kept} on disk between runs"),
                    };
                    writeln!(f, "{}: peak {}{disk}: {changes}", arm.name, arm.peak)?;
                }
                Some(why) => writeln!(f, "{}: cannot run: {why}: {changes}", arm.name)?,
            }
        }
        let count = self.arms.len();
        if self.eval_only {
            writeln!(f, "{count} arms are measured, nothing is trained")
        } else {
            writeln!(
                f,
                "{} runs, {}: {count} arms under the seeds {}",
                count * self.seeds.len(),
                self.turns.name(),
                self.seeds
                    .iter()
                    .map(u64::to_string)
                    .collect::<Vec<_>>()
                    .join(", ")
            )
        }
    }
}

/// A comparison whose arms are planned.
struct Ready {
    planned: Vec<Planned>,
    process_context: ProcessContext,
    held_out: ProcessContext,
    turns: Turns,
    seeds: Vec<u64>,
    eval_only: bool,
}

impl Ready {
    fn of(
        resolved: &ResolvedConfig,
        existing: Continue,
        observer: &dyn Observer,
        stop: &StopFlag,
    ) -> Result<Self, Error> {
        let (compare, run) = (&resolved.config().compare, &resolved.config().run);
        let processes = world_of_run(run)?.processes;
        if processes > 1 {
            return Err(Error::Usage(UsageError {
                message: format!("a comparison runs in one process, found {processes}"),
                next_step: "start it without a launcher; --ranks N trains each arm on N ranks"
                    .to_owned(),
            }));
        }
        let registry = Registry::discover(&SearchPath::of(resolved));
        let arms = arms::arms(resolved, &bits::beside(compare)?, &registry)?;
        let mut process_context = ProcessContext::start(resolved.config(), stop)?;
        let base = &arms[0].resolved;
        let rows = plans::read_rows(base, &registry, &process_context, observer, stop)?;
        let held_out = ProcessContext {
            rows: rows.held_out(),
            ..process_context.clone()
        };
        process_context.rows = Some(rows);
        let (purpose, shared) = if compare.eval_only {
            (Purpose::Evaluate, &held_out)
        } else {
            (Purpose::Train, &process_context)
        };
        let planning = Planning {
            registry: &registry,
            process_context: shared,
            purpose,
            existing,
            observer,
            stop,
        };
        let planned = plans::plan_all(arms, &planning)?;
        Ok(Ready {
            turns: plans::turns(compare.schedule, &planned, observer)?,
            planned,
            process_context,
            held_out,
            seeds: (run.seed..).take(compare.seeds as usize).collect(),
            eval_only: compare.eval_only,
        })
    }

    /// Refuses a comparison of which no arm can run.
    ///
    /// # Errors
    /// [`Error::Arm`] with the error of the first arm.
    fn refuse_idle(&mut self) -> Result<(), Error> {
        if self.planned.iter().any(|planned| planned.refused.is_none()) {
            return Ok(());
        }
        let mut refused = std::mem::take(&mut self.planned).into_iter();
        let first = refused.find_map(|planned| Some((planned.refused?, planned.arm.name)));
        first.map_or(Ok(()), |(why, arm)| Err(ArmFailure::of(&arm, why).into()))
    }

    /// The comparison before any of its runs.
    fn record(&self) -> Result<Comparison, Error> {
        let arm = |planned: &Planned| {
            Ok(Arm {
                name: planned.arm.name.clone(),
                plugins: planned.plugins.clone(),
                changes: planned.arm.changes.clone(),
                same_memory_as: planned.arm.same_memory_as.clone(),
                command: command::train_command(&planned.arm.resolved)?,
                failures: Vec::new(),
            })
        };
        let first = self.planned.first().filter(|planned| planned.arm.dense);
        Ok(Comparison {
            espalier: env!("CARGO_PKG_VERSION").to_owned(),
            config_version: CONFIG_VERSION,
            arms: self.planned.iter().map(arm).collect::<Result<_, Error>>()?,
            dense_baseline: first.map(|planned| planned.arm.name.clone()),
            seeds: self.seeds.clone(),
            schedule: self.turns.name().to_owned(),
            eval_only: self.eval_only,
        })
    }
}

/// An arm's changes to the config, `key = value`.
fn changes(planned: &Planned) -> Vec<String> {
    let leaves = espalier_trainer::checkpoint::leaves(&Json::Object(planned.arm.changes.clone()));
    let shown = leaves
        .into_iter()
        .map(|(key, value)| format!("{key} = {value}"));
    shown.collect()
}

/// Config version of the comparison in `out`; this program's version where there is none yet.
fn version_on_record(out: &Path) -> u64 {
    let record = files::read_object(&out.join(COMPARISON), FileKind::Record);
    record.map_or(CONFIG_VERSION, |record| config_version(&record))
}

/// Refuses to resume a comparison that differs from the one in `out`. New seeds can be appended.
fn refuse_another(out: &Path, record: &Comparison) -> Result<(), Error> {
    let path: PathBuf = out.join(COMPARISON);
    let old = files::read_object(&path, FileKind::Record)?;
    let old: Comparison = serde_json::from_value(old).unwrap_or_default();
    let tree = |record: &Comparison, seeds: &[u64]| {
        let arms = record.arms.iter();
        let arms = arms.map(|arm| (arm.name.clone(), json!({ "changes": arm.changes })));
        json!({
            "arms": arms.collect::<serde_json::Map<String, Json>>(),
            "seeds": seeds,
            "eval_only": record.eval_only,
        })
    };
    let kept = &record.seeds[..old.seeds.len().min(record.seeds.len())];
    let differences = tree_differences(&tree(&old, &old.seeds), &tree(record, kept));
    if differences.is_empty() {
        Ok(())
    } else {
        Err(CheckpointError::Changed {
            path,
            differences,
            result: None,
        }
        .into())
    }
}
