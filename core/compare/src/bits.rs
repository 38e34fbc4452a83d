//! Bits by evidence: what each quantizer option costs each site, measured -> the options of least
//! predicted divergence that fit in a number of bytes.
//!
//! One weight at a time is replaced by its packed and decoded values, and the divergence of the
//! logits from those of the dense model is measured on a few rows. A small error of the weights
//! changes the divergence by a quadratic form of it. Errors of different weights are nearly
//! uncorrelated, so the terms between them average out, and the divergence of several packed
//! weights is about the sum of those of each alone. The choice minimises that sum.

mod beside;
mod choice;
mod knapsack;
mod measurable;
mod measuring;
mod options;
mod rules;
mod table;

use std::path::{Path, PathBuf};

use espalier_config::{Init, ResolvedConfig};
use espalier_data::{BatchSchedule, DataError};
use espalier_engine::observer::{Event, Observer};
use espalier_engine::team::Team;
use espalier_interface::bytes::Bytes;
use espalier_interface::{Role, Services};
use espalier_plan::plan::{Purpose, RunPlan};
use espalier_plan::resident;
use espalier_registry::{Registry, SearchPath};
use espalier_system::failure::UsageError;
use espalier_system::memory::{self, Meter};
use espalier_system::stop::StopFlag;
use espalier_system::threads::HostServices;
use espalier_trainer::session::{OpenedModel, ProcessContext, Session};
use espalier_trainer::train::LoadedBase;
use espalier_trainer::weights;

pub use choice::{BitChoice, OptionUse, Uniform};
pub use options::{NONE, OptionRecord};
pub use table::{BitTable, Measured, SiteRecord, Subject};

use crate::Error;
use crate::base::{self, Extra};
use crate::dense_baseline::DenseBaseline;
use crate::plans::without_roles;

pub(crate) use beside::beside;
use measurable::Measurable;
use measuring::Trial;

/// What is to be measured and chosen.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The options, as `nf4` or `hqq:bits=3`; `none` keeps a weight dense.
    pub options: Vec<String>,
    /// Bytes that all weights of the base may take in memory.
    pub memory: Bytes,
    /// Most tokens of the rows; a row that is longer is taken alone.
    pub tokens: u64,
    /// The file of the table.
    pub table: PathBuf,
}

/// Measures what is not in the table yet, and chooses.
///
/// # Errors
/// [`Error::Usage`] for options that are not usable, a packed model, and less memory than the
/// smallest options need; errors of model, rows and plan; a failure while measuring. The table
/// keeps what was measured.
pub fn choose_bits(
    resolved: &ResolvedConfig,
    asked: &Asked,
    observer: &dyn Observer,
    stop: &StopFlag,
) -> Result<BitChoice, Error> {
    let registry = Registry::discover(&SearchPath::of(resolved));
    refuse_own_packing(resolved, &registry)?;
    let mut process_context = ProcessContext::start(resolved.config(), stop)?;
    let services = process_context.services;
    let options = options::options(&asked.options, resolved.config(), &registry, services)?;
    let dense = without_roles(resolved, &[Role::QUANTIZER, Role::ADAPTER], &registry)?;
    let opened_model = OpenedModel::open(&dense, Purpose::Evaluate, &process_context)?;
    if let Some(packed) = opened_model.components.quantizers.packed() {
        return Err(Error::Usage(UsageError {
            message: format!("the model is packed already, by `{}`", packed.component()),
            next_step: "start from its original weights".to_owned(),
        }));
    }
    let rows = opened_model.read_rows(Purpose::Evaluate, observer, stop)?;
    let rows = rows.ok_or(espalier_trainer::Error::from(DataError::NoFiles))?;
    drop(opened_model);
    let seed = resolved.config().run.seed;
    process_context.rows = Some(rows.drawn(asked.tokens, seed));
    let meter = Meter::whole_process();
    let purpose = Purpose::Evaluate;
    let session = Session::open_among(&dense, purpose, &process_context, &meter, observer, stop)?;
    let plan = &session.run.plan;
    resident::check("--auto-bits", plan)?;
    let Measurable {
        first_shape,
        mut table,
        trials,
        impossible,
    } = Measurable::of(&session, &options)?;
    if let (Some(shape), true) = (first_shape, resolved.config().run.out.is_some()) {
        options::check_writable(&options, shape)?;
    }
    if let Some(old) = BitTable::read(&asked.table)? {
        table = table.going_on(old, &asked.table)?;
    }
    let trials = trials.into_iter();
    let trials = trials.filter(|trial| table.found(&trial.site, trial.option).is_none());
    let trials: Vec<Trial<'_>> = trials.collect();
    for (site, option) in impossible {
        if table.found(&site, &option).is_none() {
            table.measured.push(Measured {
                site,
                option,
                ..Measured::default()
            });
        }
    }
    check_least(&table, &trials, asked)?;
    check_memory(plan, &trials, services.threads())?;
    table.write(&asked.table)?;
    if trials.is_empty() {
        let note = format!("{}: everything is measured already", asked.table.display());
        observer.observe(&Event::Note(&note));
    } else {
        observer.observe(&Event::RunStarted(&session.summary()));
        let measuring = Measuring {
            dense: &dense,
            services,
            trials: &trials,
            path: &asked.table,
            observer,
            stop,
        };
        measuring.run(session, &mut table)?;
    }
    BitChoice::of(&table, &asked.options, asked.memory)
}

/// The choice among all options of the table in `path`, without measuring.
///
/// # Errors
/// No such table; as [`BitChoice::of`].
pub fn choice_of_table(path: &Path, memory: Bytes) -> Result<BitChoice, Error> {
    let table = read_table(path)?;
    BitChoice::of(&table, &names(&table), memory)
}

/// The table in `path`.
///
/// # Errors
/// No such table; a file that is none.
fn read_table(path: &Path) -> Result<BitTable, Error> {
    BitTable::read(path)?.ok_or_else(|| {
        Error::Usage(UsageError {
            message: format!("there is no table {}", path.display()),
            next_step: "measure one with `host quantize --auto-bits FILE`".to_owned(),
        })
    })
}

/// The names of all options of `table`.
fn names(table: &BitTable) -> Vec<String> {
    let options = table.options.iter();
    options.map(|option| option.name.clone()).collect()
}

/// Refuses a config that chooses the packing itself, or has no files to measure.
fn refuse_own_packing(resolved: &ResolvedConfig, registry: &Registry) -> Result<(), Error> {
    let config = resolved.config();
    let roles = registry.roles_of(&config.plugins)?;
    let refused = |message: String, next_step: &str| {
        Err(Error::Usage(UsageError {
            message,
            next_step: next_step.to_owned(),
        }))
    };
    if let Some(quantizer) = roles.get(&Role::QUANTIZER) {
        return refused(
            format!("--auto-bits chooses the quantizers, and --plugins names `{quantizer}`"),
            "name it in --options instead",
        );
    }
    if !config.sites.is_empty() {
        return refused(
            "--auto-bits chooses [[sites]], and the config has some".to_owned(),
            "leave them out; put them behind the chosen ones afterwards: the last match holds",
        );
    }
    if config.model.init == Init::Random {
        return refused(
            "--auto-bits measures a model's files, and model.init is \"random\"".to_owned(),
            "leave model.init out",
        );
    }
    Ok(())
}

/// Refuses less memory than the smallest options need, before anything is measured: options are as
/// if all were measured.
fn check_least(table: &BitTable, trials: &[Trial<'_>], asked: &Asked) -> Result<(), Error> {
    let mut assumed = table.clone();
    assumed.measured.extend(trials.iter().map(|trial| Measured {
        site: trial.site.clone(),
        option: trial.option.to_owned(),
        bytes: Some(trial.bytes),
        divergence: Some(0.0),
        ..Measured::default()
    }));
    BitChoice::of(&assumed, &asked.options, asked.memory).map(|_| ())
}

/// Refuses a measurement that does not fit into memory.
fn check_memory(plan: &RunPlan, trials: &[Trial<'_>], threads: usize) -> Result<(), Error> {
    let mut largest = 0;
    for trial in trials {
        largest = largest.max(trial.memory(&plan.params)?);
    }
    let step = plan.memory.step_peak() + Extra::of(plan, threads).measuring + largest;
    let peak = plan.memory.loading_peak().max(step);
    let available = plan.available(memory::available_bytes());
    Ok(plan.check_needed(peak - plan.memory.program, available)?)
}

/// The measuring of a session that fits.
struct Measuring<'a> {
    dense: &'a ResolvedConfig,
    services: &'static HostServices,
    trials: &'a [Trial<'a>],
    path: &'a Path,
    observer: &'a dyn Observer,
    stop: &'a StopFlag,
}

impl Measuring<'_> {
    fn run(&self, session: Session, table: &mut BitTable) -> Result<(), Error> {
        let config = self.dense.config();
        let Session {
            directory,
            components,
            data,
            run,
            ..
        } = session;
        let data = data.expect("the rows were read before");
        let rows: &BatchSchedule = &data.train;
        let by_role = components.by_role();
        let loaded = weights::load(config, &directory, &components, run, self.observer);
        let named = |error: espalier_trainer::Error| error.naming(&by_role);
        let (executor, _) = loaded.map_err(named)?;
        let subject = LoadedBase {
            team: &Team::new(vec![executor]),
            rows,
            seed: config.run.seed,
            services: self.services,
            observer: self.observer,
            stop: self.stop,
        };
        let mut dense_baseline = DenseBaseline::new(&config.data.cache_directory());
        base::measure_dense_baseline(&subject, &mut dense_baseline).map_err(named)?;
        let store = directory.tensors()?;
        let (trials, path) = (self.trials, self.path);
        measuring::measure(&subject, &store, trials, &dense_baseline, table, path)
    }
}
