//! A config -> the open model, plugins and devices of a run, before its rows are read.

use std::sync::Arc;

use espalier_config::{Config, ResolvedConfig};
use espalier_engine::device_graph::GraphKernels;
use espalier_engine::executor::PreparedRun;
use espalier_engine::observer::Observer;
use espalier_engine::ranks::{ranks_of_process, world_of_run};
use espalier_interface::model::Model;
use espalier_interface::{DeviceInfo, ErrorCode};
use espalier_plan::plan::{self, Demand, HostBytes, Purpose};
use espalier_plan::trained_weights::TrainedWeights;
use espalier_registry::select::{self, Collectives, Components};
use espalier_registry::{ComponentSources, Registry, SearchPath, answer, sections};
use espalier_system::failure::UsageError;
use espalier_system::files::{ModelDirectory, WeightsError};
use espalier_system::memory::{self, Meter};
use espalier_system::stop::StopFlag;
use espalier_system::threads::HostServices;
use espalier_system::world::World;

use super::Session;
use super::device::{DevicesOfRanks, OpenDevice};
use super::limits::{limits, limits_without_rows, micro_batches_without_rows};
use super::process_context::ProcessContext;
use super::rows::{Rows, RowsModel, RunData};
use crate::Error;

/// The part of a session that exists before its rows are read.
pub struct OpenedModel<'a> {
    pub(super) resolved: &'a ResolvedConfig,
    pub config: &'a Config,
    pub directory: ModelDirectory,
    pub components: Components,
    pub(super) places: ComponentSources,
    pub model: Model,
    /// The device of each rank of this process.
    pub(super) devices: Vec<OpenDevice>,
    pub(super) world: World,
    pub collectives: Collectives,
    pub services: &'static HostServices,
}

impl<'a> OpenedModel<'a> {
    /// Opens the model, creates the plugins and opens the device.
    ///
    /// # Errors
    /// Any error of model, plugins or device; without training, also an adapter that was never
    /// trained.
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
    pub(super) fn of(
        resolved: &'a ResolvedConfig,
        directory: ModelDirectory,
        purpose: Purpose,
        process_context: &ProcessContext,
    ) -> Result<Self, Error> {
        let config = resolved.config();
        let services = process_context.services;
        let registry = Registry::discover(&SearchPath::of(resolved));
        sections::check(resolved, &registry)?;
        let mut components = select::select(resolved, &directory, &registry, services)?;
        refuse_untrained_adapter(purpose, &components)?;
        let model = describe(&directory, &components)?;
        if let (Some(adapter), Some(_)) = (&components.adapter, &components.saved_adapter) {
            answer::model(&components.family, &model)?;
            let sites = answer::adapter_sites(adapter, &model)?;
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
        let devices = DevicesOfRanks {
            config,
            registry: &registry,
            services,
        };
        let devices = devices.open(world, &mut components.backend)?;
        let collectives = Collectives::select(config, &world, &registry, services)?;
        let used = components.identities().into_iter();
        let places = registry.places(used.chain(collectives.identities()));
        // Only one of several processes prints.
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

    /// What the device of the first rank says of itself.
    pub fn device_info(&self) -> &DeviceInfo {
        &self.devices[0].1
    }

    /// Kernels of graphs on the device of the first rank.
    ///
    /// # Errors
    /// A backend that does not list its ops.
    pub fn graph_kernels(&self) -> Result<GraphKernels, Error> {
        let device = Arc::clone(&self.devices[0].0);
        let ops = answer::ops(&self.components.backend)?;
        Ok(GraphKernels::new(device, ops))
    }

    /// The model for which rows are read.
    pub(super) fn rows_model(&self) -> RowsModel<'_> {
        RowsModel {
            resolved: self.resolved,
            directory: &self.directory,
            model: &self.model,
        }
    }

    /// The rows, if the config names any.
    ///
    /// # Errors
    /// The first error in the files.
    pub fn read_rows(
        &self,
        purpose: Purpose,
        observer: &dyn Observer,
        stop: &StopFlag,
    ) -> Result<Option<Rows>, Error> {
        if self.config.data.files.is_empty() {
            return Ok(None);
        }
        let read = || Rows::read(&self.rows_model(), purpose, observer);
        let rows = self.services.install(read)?;
        stop.check()?;
        Ok(Some(rows))
    }

    /// The session with or without rows.
    ///
    /// # Errors
    /// An invalid shape or option, a refusal of a plugin.
    pub(super) fn plan_rows(
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
                .map(|questions| questions.demand().of_rank(self.world.ranks)),
            world: self.world,
            device_group_bytes: self.collectives.device_group_bytes(),
            micro_batches: of_a_step.div_ceil(u64::from(self.world.ranks)),
        };
        self.plan(demand, data, meter)
    }

    /// The session of `demand`.
    ///
    /// # Errors
    /// As [`OpenedModel::plan_rows`].
    pub(super) fn plan(
        self,
        demand: Demand,
        data: Option<RunData>,
        meter: &Meter,
    ) -> Result<Session, Error> {
        let host = HostBytes {
            program: meter.now(),
            available: memory::available_bytes(),
        };
        let trained = TrainedWeights::of(&self.config.model, self.directory.config(), &self.model)?;
        let mut runs = Vec::with_capacity(self.devices.len());
        for (device, device_info) in self.devices {
            let plan = plan::make(
                self.config,
                demand,
                self.model.clone(),
                &trained,
                &self.components,
                device_info,
                host,
            )?;
            let run = PreparedRun::new(plan, device, &self.components.backend);
            let named = |error| Error::from(error).naming(&self.components.by_role());
            runs.push(run.map_err(named)?);
        }
        let others = runs.split_off(1);
        let run = runs.remove(0);
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

/// Refuses a new adapter in a session without training.
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
        // The content of the file is invalid, not the plugin that reads it.
        ErrorCode::INVALID => Error::Weights(WeightsError {
            path: directory.path().to_owned(),
            message: error.message,
        }),
        _ => family.failed("describe", error).into(),
    })
}
