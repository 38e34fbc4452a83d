//! A resolved config -> all parts of a run before its first weight is read.

mod device;
mod limits;
mod loaded;
mod opened_model;
mod process_context;
mod row_report;
mod rows;

use espalier_config::{Config, ResolvedConfig};
use espalier_engine::executor::PreparedRun;
use espalier_engine::observer::{Observer, PlanSummary};
use espalier_engine::ranks::world_of_run;
use espalier_interface::model::Model;
use espalier_plan::patterns;
use espalier_plan::plan::{
    Assumed, BatchLimits, Demand, Generation, IdleRanks, Purpose, WorldMemory,
};
use espalier_registry::select::{Collectives, Components};
use espalier_registry::{ComponentSources, preset};
use espalier_system::files::ModelDirectory;
use espalier_system::memory::Meter;
use espalier_system::stop::StopFlag;
use espalier_system::threads::HostServices;
use espalier_system::world::World;

use crate::Error;
use crate::bytes::Bytes;

use limits::micro_batches_without_rows;

pub(crate) use device::{DevicesOfRanks, OpenDevice};
pub use loaded::{Loaded, load};
pub use opened_model::OpenedModel;
pub(crate) use opened_model::describe;
pub use process_context::ProcessContext;
pub use rows::{Rows, RunData};

/// A run before its weights are read.
pub struct Session {
    /// The model's directory.
    pub directory: ModelDirectory,
    /// The plugins.
    pub components: Components,
    /// Where they came from.
    pub places: ComponentSources,
    /// The rows; `None` for a plan without named files.
    pub data: Option<RunData>,
    /// The plan of this process's first rank.
    pub run: PreparedRun,
    /// The plans of its other ranks.
    pub others: Vec<PreparedRun>,
    /// The collectives between the ranks.
    pub collectives: Collectives,
    /// The threads of the session.
    pub services: &'static HostServices,
}

impl Session {
    /// Reads the model's config and the rows, and creates the plugins and the plan of a training
    /// run.
    ///
    /// # Errors
    /// Any error of config, plugins, model, rows or plan, before any write and before any weight is
    /// read.
    pub fn open(resolved: &ResolvedConfig, observer: &dyn Observer) -> Result<Self, Error> {
        let session = Session::open_for(resolved, Purpose::Train, observer, &StopFlag::new())?;
        session.check_patterns(resolved)?;
        Ok(session)
    }

    /// Refuses patterns of the config that match nothing in this session.
    ///
    /// # Errors
    /// [`Error::Usage`] with the pattern and similar names.
    pub fn check_patterns(&self, resolved: &ResolvedConfig) -> Result<(), Error> {
        let quantizers = &self.components.quantizers;
        Ok(patterns::check(resolved, quantizers, &self.run.plan)?)
    }

    /// As [`Session::open`], for any purpose; plugins see a stop request when `stop` has one.
    ///
    /// # Errors
    /// As [`Session::open`]; without training, also an adapter that was never trained.
    pub fn open_for(
        resolved: &ResolvedConfig,
        purpose: Purpose,
        observer: &dyn Observer,
        stop: &StopFlag,
    ) -> Result<Self, Error> {
        let process_context = ProcessContext::start(resolved.config(), stop)?;
        let meter = Meter::whole_process();
        Session::open_among(resolved, purpose, &process_context, &meter, observer, stop)
    }

    /// As [`Session::open_for`], beside other sessions of this process; `meter` measures the memory
    /// of this one.
    ///
    /// # Errors
    /// As [`Session::open_for`].
    pub fn open_among(
        resolved: &ResolvedConfig,
        purpose: Purpose,
        process_context: &ProcessContext,
        meter: &Meter,
        observer: &dyn Observer,
        stop: &StopFlag,
    ) -> Result<Self, Error> {
        let opened_model = OpenedModel::open(resolved, purpose, process_context)?;
        let rows = match &process_context.rows {
            Some(rows) => Some(rows.clone()),
            None => opened_model.read_rows(purpose, observer, stop)?,
        };
        let data = rows.map(|rows| rows.into_data(&opened_model.rows_model(), purpose));
        opened_model.plan_rows(purpose, data.transpose()?, meter)
    }

    /// As [`Session::open`], for a plan only: for other machines, or for `preset`, a model with a
    /// config only. A preset has no tokenizer, so rows are not read, and the largest micro-batch is
    /// the config's.
    ///
    /// # Errors
    /// As [`Session::open`]; an unknown preset.
    pub fn open_to_plan(
        resolved: &ResolvedConfig,
        preset: Option<&str>,
        assumed: Assumed,
        process_context: &ProcessContext,
        observer: &dyn Observer,
    ) -> Result<Self, Error> {
        let purpose = Purpose::Train;
        let mut opened_model = match preset {
            Some(name) => {
                OpenedModel::of(resolved, preset::model(name)?, purpose, process_context)?
            }
            None => OpenedModel::open(resolved, purpose, process_context)?,
        };
        for (_, info) in &mut opened_model.devices {
            assumed.replace(info);
        }
        opened_model.world = assumed.world(opened_model.world)?;
        let rows = match (preset, &process_context.rows) {
            (Some(_), _) => None,
            (None, Some(rows)) => Some(rows.clone()),
            (None, None) => opened_model.read_rows(purpose, observer, &StopFlag::new())?,
        };
        let data = rows.map(|rows| rows.into_data(&opened_model.rows_model(), purpose));
        let session =
            opened_model.plan_rows(purpose, data.transpose()?, &Meter::whole_process())?;
        session.check_patterns(resolved)?;
        Ok(session)
    }

    /// The shared rows of several plans of one model, if the config names any.
    ///
    /// # Errors
    /// The first error in the files.
    pub fn rows_to_plan(
        resolved: &ResolvedConfig,
        process_context: &ProcessContext,
        observer: &dyn Observer,
    ) -> Result<Option<Rows>, Error> {
        let opened_model = OpenedModel::open(resolved, Purpose::Train, process_context)?;
        opened_model.read_rows(Purpose::Train, observer, &StopFlag::new())
    }

    /// The ranks of a plan.
    ///
    /// # Errors
    /// More ranks than a world can have.
    pub fn world_to_plan(resolved: &ResolvedConfig, assumed: &Assumed) -> Result<World, Error> {
        Ok(assumed.world(world_of_run(&resolved.config().run)?)?)
    }

    /// A session for generation. `demand` returns the capacity of all ranks together, once the
    /// model is known.
    ///
    /// # Errors
    /// As [`Session::open_for`]; errors of `demand`.
    pub fn open_to_generate(
        resolved: &ResolvedConfig,
        stop: &StopFlag,
        demand: impl FnOnce(&ModelDirectory, &Model) -> Result<Generation, Error>,
    ) -> Result<Self, Error> {
        let process_context = ProcessContext::start(resolved.config(), stop)?;
        let opened_model = OpenedModel::open(resolved, Purpose::Generate, &process_context)?;
        let generation = demand(&opened_model.directory, &opened_model.model)?;
        let generation = generation.of_rank(opened_model.world.ranks);
        let demand = Demand {
            purpose: Purpose::Generate,
            limits: BatchLimits {
                max_tokens: generation.max_tokens,
                max_sequences: generation.cache.slots,
            },
            generation: Some(generation),
            world: opened_model.world,
            device_group_bytes: opened_model.collectives.device_group_bytes(),
            micro_batches: 1,
        };
        opened_model.plan(demand, None, &Meter::whole_process())
    }

    /// The plan in a few numbers.
    pub fn summary(&self) -> PlanSummary {
        let (num_params, num_trained_params) = self.run.plan.num_params();
        let memory = WorldMemory::of(&self.run.plan);
        PlanSummary {
            model: self.directory.path().display().to_string(),
            plugins: self
                .components
                .identities()
                .iter()
                .map(|i| i.component.clone())
                .collect(),
            num_params,
            num_trained_params,
            total_steps: self
                .data
                .as_ref()
                .map_or(0, |data| data.train.total_steps()),
            peak_host_bytes: Bytes(memory.process.needed()),
            peak_device_bytes: Bytes(self.run.plan.device_bytes()),
            memory,
        }
    }

    /// The ranks without work in a training run, if any.
    pub fn idle_ranks(&self, config: &Config) -> Option<IdleRanks> {
        let ranks = u64::from(self.run.plan.demand.world.ranks);
        let train = self.data.as_ref().map(|data| &data.train);
        let micro_batches = match train {
            Some(rows) => rows.extent().max_micro_batches as u64,
            None => micro_batches_without_rows(config),
        };
        let rows = train.map(|rows| rows.dataset().num_sequences() as u64);
        IdleRanks::of(&config.data, ranks, micro_batches, rows)
    }
}
