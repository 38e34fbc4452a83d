//! A resolved config -> everything of a run that stands before its first weight is read.

mod loaded;
mod rows;
mod telling;

use std::sync::Arc;

use espalier_compile::splice;
use espalier_config::{Config, ResolvedConfig};
use espalier_data::{Extent, Schedule};
use espalier_engine::executor::PreparedRun;
use espalier_engine::observer::{Observer, PlanSummary};
use espalier_engine::ranks::{ranks_of_process, world_of_run};
use espalier_interface::model::Model;
use espalier_interface::{Device, DeviceInfo, ErrorCode};
use espalier_plan::plan::{
    self, Assumed, BatchLimits, Demand, Generation, IdleRanks, Purpose, WorldMemory,
};
use espalier_plan::{patterns, resident};
use espalier_registry::select::{self, Collectives, Components};
use espalier_registry::{Places, Registry, SearchPath, answer, preset, sections};
use espalier_system::failure::UsageError;
use espalier_system::files::{ModelDirectory, WeightsError};
use espalier_system::memory::Meter;
use espalier_system::stop::StopFlag;
use espalier_system::threads::HostServices;
use espalier_system::world::World;

use crate::Error;
use crate::bytes::Bytes;
use crate::generate::Questions;

pub use loaded::{Loaded, load};
pub use rows::{Rows, RunData};

/// What the sessions of one process have in common.
#[derive(Clone)]
pub struct ProcessContext {
    /// The threads that everything runs on.
    pub services: &'static HostServices,
    /// The rows, where they are read already.
    pub rows: Option<Rows>,
}

impl ProcessContext {
    /// Threads that tell plugins to stop when `stop` is set, and no rows yet.
    ///
    /// # Errors
    /// Where the operating system starts no more threads.
    pub fn start(config: &Config, stop: &StopFlag) -> Result<Self, Error> {
        let services = HostServices::start_until(config.run.threads, stop.clone())?;
        Ok(ProcessContext {
            services,
            rows: None,
        })
    }
}

/// A run before its weights are read.
pub struct Session {
    /// The model's directory.
    pub directory: ModelDirectory,
    /// The plugins.
    pub components: Components,
    /// Where they came from.
    pub places: Places,
    /// The rows; none where only a plan was asked for and no files were named.
    pub data: Option<RunData>,
    /// The plan of this process's first rank.
    pub run: PreparedRun,
    /// Those of its other ranks.
    pub others: Vec<PreparedRun>,
    /// What joins the ranks.
    pub collectives: Collectives,
    /// The threads that everything runs on.
    pub services: &'static HostServices,
}

impl Session {
    /// Reads the model's config and the rows, makes the plugins and the plan of a training run.
    ///
    /// # Errors
    /// Whatever of it is wrong, before anything is written or a weight is read.
    pub fn open(resolved: &ResolvedConfig, observer: &dyn Observer) -> Result<Self, Error> {
        let session = Session::open_for(resolved, Purpose::Train, observer, &StopFlag::new())?;
        session.check_patterns(resolved)?;
        Ok(session)
    }

    /// Refuses patterns of the config that are about nothing in this session.
    ///
    /// # Errors
    /// [`Error::Usage`], naming the pattern and what is near.
    pub fn check_patterns(&self, resolved: &ResolvedConfig) -> Result<(), Error> {
        let quantizers = &self.components.quantizers;
        Ok(patterns::check(resolved, quantizers, &self.run.plan)?)
    }

    /// As [`Session::open`], for any purpose; plugins are told to stop when `stop` is.
    ///
    /// # Errors
    /// As [`Session::open`]; where nothing is trained, also an adapter that was never trained.
    pub fn open_for(
        resolved: &ResolvedConfig,
        purpose: Purpose,
        observer: &dyn Observer,
        stop: &StopFlag,
    ) -> Result<Self, Error> {
        let process_context = ProcessContext::start(resolved.config(), stop)?;
        let meter = Meter::whole_process();
        Session::open_among(
            resolved,
            purpose,
            (&process_context, &meter),
            observer,
            stop,
        )
    }

    /// As [`Session::open_for`], beside other sessions of this process; `meter` knows this one's memory from theirs.
    ///
    /// # Errors
    /// As [`Session::open_for`].
    pub fn open_among(
        resolved: &ResolvedConfig,
        purpose: Purpose,
        (process_context, meter): (&ProcessContext, &Meter),
        observer: &dyn Observer,
        stop: &StopFlag,
    ) -> Result<Self, Error> {
        let opened_model = OpenedModel::open(resolved, purpose, process_context)?;
        let rows = match &process_context.rows {
            Some(rows) => Some(rows.clone()),
            None => opened_model.read_rows(purpose, observer, stop)?,
        };
        let data = rows.map(|rows| rows.into_data(&opened_model, purpose));
        opened_model.plan_rows(purpose, data.transpose()?, meter)
    }

    /// As [`Session::open`], to plan only: for other machines, or for `preset`, a model of which there is nothing but its
    /// config. A preset has no tokenizer, so that rows are not read and the largest micro-batch is the config's.
    ///
    /// # Errors
    /// As [`Session::open`]; a preset that is unknown.
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
        let data = rows.map(|rows| rows.into_data(&opened_model, purpose));
        let session =
            opened_model.plan_rows(purpose, data.transpose()?, &Meter::whole_process())?;
        session.check_patterns(resolved)?;
        Ok(session)
    }

    /// The rows that plans of one model share, where the config names any.
    ///
    /// # Errors
    /// The first fault of the files.
    pub fn rows_to_plan(
        resolved: &ResolvedConfig,
        process_context: &ProcessContext,
        observer: &dyn Observer,
    ) -> Result<Option<Rows>, Error> {
        let opened_model = OpenedModel::open(resolved, Purpose::Train, process_context)?;
        opened_model.read_rows(Purpose::Train, observer, &StopFlag::new())
    }

    /// The ranks that a plan is for.
    ///
    /// # Errors
    /// More ranks than any world has.
    pub fn world_to_plan(resolved: &ResolvedConfig, assumed: &Assumed) -> Result<World, Error> {
        Ok(assumed.world(world_of_run(&resolved.config().run)?)?)
    }

    /// A session to generate in. `demand` says, once the model is known, how much is generated at once.
    ///
    /// # Errors
    /// As [`Session::open_for`]; what `demand` gives.
    pub fn open_to_generate(
        resolved: &ResolvedConfig,
        stop: &StopFlag,
        demand: impl FnOnce(&ModelDirectory, &Model) -> Result<Generation, Error>,
    ) -> Result<Self, Error> {
        let process_context = ProcessContext::start(resolved.config(), stop)?;
        let opened_model = OpenedModel::open(resolved, Purpose::Generate, &process_context)?;
        let generation = demand(&opened_model.directory, &opened_model.model)?;
        let demand = Demand {
            purpose: Purpose::Generate,
            limits: BatchLimits {
                max_tokens: generation.max_tokens,
                max_sequences: generation.cache.slots,
            },
            generation: Some(generation),
            world: opened_model.world,
            micro_batches: 1,
        };
        opened_model.plan(demand, None, &Meter::whole_process())
    }

    /// The plan in a few numbers.
    pub fn summary(&self) -> PlanSummary {
        let (num_params, num_trained_params) = self.run.plan.num_params();
        let memory = WorldMemory::of(&self.run.plan);
        let on_device = if self.run.plan.device_info.shares_host_memory {
            0
        } else {
            self.run.plan.memory.on_device()
        };
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
            peak_device_bytes: Bytes(on_device),
            memory,
        }
    }

    /// The ranks that have nothing to do in a training run, where there are any.
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

/// What stands of a session before its rows are read.
pub struct OpenedModel<'a> {
    resolved: &'a ResolvedConfig,
    pub config: &'a Config,
    pub directory: ModelDirectory,
    pub components: Components,
    places: Places,
    pub model: Model,
    /// The device of each rank of this process.
    devices: Vec<(Arc<dyn Device>, DeviceInfo)>,
    world: World,
    pub collectives: Collectives,
    pub services: &'static HostServices,
}

impl<'a> OpenedModel<'a> {
    /// Opens the model, makes the plugins and opens the device.
    ///
    /// # Errors
    /// Whatever of it is wrong; where nothing is trained, also an adapter that was never trained.
    pub fn open(
        resolved: &'a ResolvedConfig,
        purpose: Purpose,
        process_context: &ProcessContext,
    ) -> Result<Self, Error> {
        let directory = model_directory(resolved.config())?;
        OpenedModel::of(resolved, directory, purpose, process_context)
    }

    /// As [`OpenedModel::open`], with the model in `directory`.
    ///
    /// # Errors
    /// As [`OpenedModel::open`].
    fn of(
        resolved: &'a ResolvedConfig,
        directory: ModelDirectory,
        purpose: Purpose,
        process_context: &ProcessContext,
    ) -> Result<Self, Error> {
        let config = resolved.config();
        refuse_later_versions(config)?;
        let services = process_context.services;
        let registry = Registry::discover(&SearchPath::of(resolved));
        sections::check(resolved, &registry)?;
        let mut components = select::select(resolved, &directory, &registry, services)?;
        refuse_untrained_adapter(purpose, &components)?;
        let model = describe(&directory, &components)?;
        if components.saved_adapter.is_some() {
            answer::model(&components.family, &model)?;
            let sites = splice::sites(&model);
            select::refuse_other_adapter_options(
                resolved,
                &components,
                &sites,
                &registry,
                services,
            )?;
        }
        let world = match purpose {
            Purpose::Train => world_of_run(&config.run)?,
            Purpose::Evaluate | Purpose::Generate => World::threads(ranks_of_process(&config.run)),
        };
        let ranks = world.ranks_per_process() as usize;
        let mut devices = Vec::with_capacity(ranks);
        for rank in 0..ranks {
            if ranks > 1 {
                // A rank computes on its share of the threads.
                let share = services.share(ranks)?;
                components.backend = select::backend(config, &registry, share)?;
            }
            devices.push(open_device(config, &components, rank)?);
        }
        let collectives = Collectives::select(config, &world, &registry, services)?;
        let used = components.identities().into_iter();
        let places = registry.places(used.chain(collectives.identities()));
        // Of several processes one speaks for all.
        if world_of_run(&config.run)?.writes() {
            places.tell();
        }
        Ok(OpenedModel {
            resolved,
            config,
            directory,
            components,
            places,
            model,
            devices,
            collectives,
            world,
            services,
        })
    }

    /// The device of the first rank.
    pub fn device(&self) -> &dyn Device {
        self.devices[0].0.as_ref()
    }

    /// The rows, where the config names any.
    ///
    /// # Errors
    /// The first fault of the files.
    pub fn read_rows(
        &self,
        purpose: Purpose,
        observer: &dyn Observer,
        stop: &StopFlag,
    ) -> Result<Option<Rows>, Error> {
        if self.config.data.files.is_empty() {
            return Ok(None);
        }
        let read = || Rows::read(self, purpose, observer);
        let rows = self.services.install(read)?;
        stop.check()?;
        Ok(Some(rows))
    }

    fn plan_rows(
        self,
        purpose: Purpose,
        data: Option<RunData>,
        meter: &Meter,
    ) -> Result<Session, Error> {
        let without_rows = || limits_without_rows(self.config);
        let of_a_step = data.as_ref().map_or_else(
            || micro_batches_without_rows(self.config),
            |data| data.train.extent().max_micro_batches as u64,
        );
        let demand = Demand {
            purpose,
            limits: data.as_ref().map_or_else(without_rows, limits),
            generation: data
                .as_ref()
                .and_then(|data| data.questions.as_ref())
                .map(Questions::demand),
            world: self.world,
            micro_batches: of_a_step.div_ceil(u64::from(self.world.ranks)),
        };
        self.plan(demand, data, meter)
    }

    fn plan(self, demand: Demand, data: Option<RunData>, meter: &Meter) -> Result<Session, Error> {
        let program_bytes = meter.now();
        let mut runs = Vec::with_capacity(self.devices.len());
        for (device, device_info) in self.devices {
            let plan = plan::make(
                self.config,
                demand,
                self.model.clone(),
                &self.components,
                device_info,
                program_bytes,
            )?;
            runs.push(PreparedRun::new(plan, device, &self.components.backend)?);
        }
        let others = runs.split_off(1);
        let run = runs.remove(0);
        resident::check_answers(&run.plan)?;
        Ok(Session {
            directory: self.directory,
            components: self.components,
            places: self.places,
            data,
            run,
            others,
            collectives: self.collectives,
            services: self.services,
        })
    }
}

/// Keys that the contract names and this version does not serve yet.
fn refuse_later_versions(config: &Config) -> Result<(), Error> {
    let refuse = |message: &str, next_step: &str| {
        Err(Error::Usage(UsageError {
            message: message.to_owned(),
            next_step: next_step.to_owned(),
        }))
    };
    if config.optim.name != "adamw" {
        return refuse(
            &format!(
                "optim.name: expected \"adamw\", found \"{}\"",
                config.optim.name
            ),
            "set optim.name = \"adamw\"",
        );
    }
    Ok(())
}

/// Without training, an adapter must have been trained before.
fn refuse_untrained_adapter(purpose: Purpose, components: &Components) -> Result<(), Error> {
    match (&components.adapter, &components.saved_adapter) {
        (Some(adapter), None) if purpose != Purpose::Train => Err(Error::Usage(UsageError {
            message: format!(
                "adapter `{}` was chosen, and no directory of a trained one",
                adapter.identity.component
            ),
            next_step: "name its directory with --adapter DIR, or leave the adapter out".to_owned(),
        })),
        _ => Ok(()),
    }
}

/// The model's directory.
fn model_directory(config: &Config) -> Result<ModelDirectory, Error> {
    let path = config.model.path.as_deref().ok_or_else(|| {
        Error::Usage(UsageError {
            message: "no model was given".to_owned(),
            next_step: "name its directory with --model DIR".to_owned(),
        })
    })?;
    Ok(ModelDirectory::open(path)?)
}

/// The model that `config.json` describes.
pub(crate) fn describe(
    directory: &ModelDirectory,
    components: &Components,
) -> Result<Model, Error> {
    let family = &components.family;
    let described = family.plugin.describe(directory.config());
    described.map_err(|error| match error.code {
        // What the file says is at fault, not the plugin that reads it.
        ErrorCode::INVALID => Error::Weights(WeightsError {
            path: directory.path().to_owned(),
            message: error.message,
        }),
        _ => family.failed("describe", error).into(),
    })
}

/// Opens the device of rank number `rank` of this process: of those that the config names in turn, the backend's first
/// otherwise.
pub(crate) fn open_device(
    config: &Config,
    components: &Components,
    rank: usize,
) -> Result<(Arc<dyn Device>, DeviceInfo), Error> {
    let backend = &components.backend;
    let devices = backend
        .plugin
        .devices()
        .map_err(|error| backend.failed("devices", error))?;
    let mut named = config.run.devices.iter().cycle();
    let index = match named.nth(rank) {
        None => 0,
        Some(wanted) => devices
            .iter()
            .position(|device| &device.name == wanted)
            .ok_or_else(|| {
                Error::Usage(UsageError {
                    message: format!(
                        "backend `{}` has no device `{wanted}`: it has {}",
                        backend.identity.component,
                        devices
                            .iter()
                            .map(|d| d.name.as_str())
                            .collect::<Vec<_>>()
                            .join(", ")
                    ),
                    next_step: "see `host doctor`".to_owned(),
                })
            })?,
    };
    let info = devices.get(index).cloned().ok_or_else(|| {
        Error::Usage(UsageError {
            message: format!("backend `{}` has no device", backend.identity.component),
            next_step: "see `host doctor`".to_owned(),
        })
    })?;
    let device = backend
        .plugin
        .open(index as u32)
        .map_err(|error| backend.failed("open", error))?;
    Ok((Arc::from(device), info))
}

/// The largest micro-batch that the config allows.
fn limits_without_rows(config: &Config) -> BatchLimits {
    let data = &config.data;
    let full = data.micro_batch * data.max_seq_len;
    let max_tokens = data.pack_tokens.unwrap_or(full) as u64;
    let max_sequences = if data.pack_tokens.is_some() {
        data.batch_size
    } else {
        data.micro_batch
    };
    BatchLimits {
        max_tokens,
        max_sequences: max_sequences as u64,
    }
}

/// Micro-batches of a step that the config asks for; 0 where that depends on the rows.
fn micro_batches_without_rows(config: &Config) -> u64 {
    let data = &config.data;
    match data.pack_tokens {
        Some(_) => 0,
        None => data.batch_size.div_ceil(data.micro_batch.max(1)) as u64,
    }
}

/// The largest micro-batch of training and evaluation.
fn limits(data: &RunData) -> BatchLimits {
    let eval = data
        .eval
        .as_ref()
        .map_or_else(Extent::default, Schedule::extent);
    let extent = data.train.extent().join(eval);
    BatchLimits {
        max_tokens: extent.max_tokens.max(1) as u64,
        max_sequences: extent.max_sequences.max(1) as u64,
    }
}
