//! New components and the executors of a running job -> executors of the new plan beside them,
//! loaded and tested.

mod shared;
mod whole;

use espalier_compile::params::Param;
use espalier_config::ResolvedConfig;
use espalier_data::StepBatch;
use espalier_engine::executor::PreparedRun;
use espalier_engine::load::LoadReport;
use espalier_engine::observer::Observer;
use espalier_engine::team::Team;
use espalier_interface::adaptation::Site;
use espalier_interface::{MemoryKind, Role};
use espalier_plan::plan::{self, Demand, Flops, HostBytes, RunPlan};
use espalier_plan::trained_weights::TrainedWeights;
use espalier_registry::select::Components;
use espalier_registry::{PluginIdentity, Registry, answer};
use espalier_system::failure::UsageError;
use espalier_system::files::ModelDirectory;
use espalier_system::memory;
use espalier_system::stop::StopFlag;
use espalier_system::threads::HostServices;

use super::{Stage, SwapRequest, trial};
use crate::checkpoint::plugin_differences;
use crate::session::{DevicesOfRanks, OpenDevice, describe};
use crate::weights::Loading;
use crate::{Error, record};

/// The constant part of a run.
pub(crate) struct RunContext<'a> {
    pub model: ModelDirectory,
    pub services: &'static HostServices,
    pub observer: &'a dyn Observer,
    pub stop: &'a StopFlag,
}

/// Facts about a plan that are known once its executor exists.
pub(crate) struct Facts {
    pub sites: Vec<Site>,
    pub flops: Flops,
    demand: Demand,
    program_bytes: u64,
    /// Planned bytes of a rank's device in a step; 0 where it is the host.
    pub device_bytes: u64,
    pub plan_sha256: String,
}

/// A swap to try between two steps.
pub(crate) struct Attempt<'a> {
    pub request: &'a SwapRequest,
    /// Completed steps, and the run's seed.
    pub at: [u64; 2],
    /// The next step's rows.
    pub next: &'a StepBatch,
    /// The expected component, where a swap is repeated on resume.
    pub expected: Option<&'a PluginIdentity>,
    /// The observer of the loading.
    pub observer: &'a dyn Observer,
    /// Receives the progress.
    pub progress: &'a dyn Fn(Stage),
}

/// The new state, created and tested beside the old one.
pub(super) struct Successor {
    pub team: Team,
    pub facts: Facts,
    pub report: LoadReport,
    pub bytes_beside: u64,
    /// Where new weights of one rank are staged.
    pub kind: MemoryKind,
    pub losses: [f64; 2],
}

/// The new ranks with all params, before their test.
struct Loaded {
    team: Team,
    report: LoadReport,
    bytes_beside: u64,
    kind: MemoryKind,
}

/// The inputs of a successor.
pub(super) struct Making<'a> {
    pub old: &'a Team,
    /// Those of the old state's plan.
    pub facts: &'a Facts,
    /// The new components.
    pub components: &'a Components,
    pub around: &'a RunContext<'a>,
    /// The new config.
    pub resolved: &'a ResolvedConfig,
    pub registry: &'a Registry,
    /// The role whose component is another one.
    pub role: Role,
    pub attempt: &'a Attempt<'a>,
}

impl Facts {
    pub fn of(plan: &RunPlan) -> Self {
        Facts {
            sites: plan.sites.clone(),
            flops: plan.flops,
            demand: plan.demand,
            program_bytes: plan.memory.program,
            device_bytes: plan.device_bytes(),
            plan_sha256: record::plan_sha256(plan),
        }
    }
}

impl Making<'_> {
    /// Creates the new state beside the old one and tests it.
    ///
    /// # Errors
    /// The reason for a failure; the old state is then unchanged.
    pub fn successor(&self) -> Result<Successor, Error> {
        let plugin = self.components.playing(self.role);
        if let Some(expected) = self.attempt.expected {
            plugin_differences(Some(expected), plugin)?;
        }
        refuse_processes(self.old)?;
        let mut runs = self.prepare()?;
        let plan = &runs[0].plan;
        same_trained_params(self.old.first().params(), &plan.params)?;
        let facts = Facts::of(plan);
        let is_alone = self.old.world().ranks == 1 && self.old.first().is_resident();
        let made = if is_alone && !plan.step_plan.moves() {
            self.shared(runs.swap_remove(0))
        } else {
            self.whole(runs)
        }?;
        self.around.stop.check()?;
        (self.attempt.progress)(Stage::Trying);
        let blamed = plugin.or(self.components.playing(Role::BACKEND));
        let blamed = blamed.expect("a run has a backend");
        let attempt = self.attempt;
        let losses = trial::run([self.old, &made.team], attempt.next, attempt.at, blamed)?;
        if let Some(adapter) = &self.components.adapter {
            // Errors that would prevent saving the result are reported now.
            answer::saved_config(adapter, &facts.sites, "")?;
        }
        self.around.stop.check()?;
        Ok(Successor {
            team: made.team,
            facts,
            report: made.report,
            bytes_beside: made.bytes_beside,
            kind: made.kind,
            losses,
        })
    }

    /// The plan of each rank, on its device.
    fn prepare(&self) -> Result<Vec<PreparedRun>, Error> {
        let config = self.resolved.config();
        let devices = match self.role {
            Role::BACKEND => self.open_devices()?,
            _ => {
                let ranks = self.old.executors().iter();
                ranks.map(|rank| rank.device()).collect()
            }
        };
        let model = describe(&self.around.model, self.components)?;
        let trained = TrainedWeights::of(&config.model, self.around.model.config(), &model)?;
        let prepared = devices.into_iter().map(|(device, device_info)| {
            let plan = plan::make(
                config,
                self.facts.demand,
                model.clone(),
                &trained,
                self.components,
                device_info,
                HostBytes {
                    program: self.facts.program_bytes,
                    available: memory::available_bytes(),
                },
            )?;
            Ok(PreparedRun::new(plan, device, &self.components.backend)?)
        });
        prepared.collect()
    }

    /// The device of each rank, by the new backend.
    fn open_devices(&self) -> Result<Vec<OpenDevice>, Error> {
        let devices = DevicesOfRanks {
            config: self.resolved.config(),
            registry: self.registry,
            services: self.around.services,
        };
        devices.open(self.old.world(), &mut self.components.backend.clone())
    }

    fn loading(&self) -> Loading<'_> {
        Loading::of(
            self.resolved.config(),
            &self.around.model,
            self.components,
            self.attempt.observer,
            self.around.stop,
        )
    }
}

/// Refuses a swap in one of several processes.
fn refuse_processes(team: &Team) -> Result<(), Error> {
    match team.world().processes {
        1 => Ok(()),
        processes => Err(Error::Usage(UsageError {
            message: format!("a swap needs all ranks in one process, found {processes} processes"),
            next_step: "start the run with its ranks as threads of one process (--ranks N)"
                .to_owned(),
        })),
    }
}

/// Refuses params that do not match the run's moments and values.
fn same_trained_params(old: &[Param], new: &[Param]) -> Result<(), Error> {
    let trained = |params: &[Param]| -> Vec<String> {
        let trained = params.iter().filter(|param| param.trainable);
        let shown = |param: &Param| {
            let (name, shape, init) = (&param.name, &param.shape, param.init);
            format!("`{name}` {shape:?}, beginning as {init:?}")
        };
        trained.map(shown).collect()
    };
    let (old, new) = (trained(old), trained(new));
    if old == new {
        return Ok(());
    }
    let nothing = || "nothing".to_owned();
    let at = (0..).find(|&at| old.get(at) != new.get(at)).unwrap_or(0);
    let expected = old.get(at).cloned().unwrap_or_else(nothing);
    let found = new.get(at).cloned().unwrap_or_else(nothing);
    Err(Error::Usage(UsageError {
        message: format!(
            "an adapter of another shape: the run trains {} params, this one {}; the first that \
             differs: expected {expected}, found {found}",
            old.len(),
            new.len()
        ),
        next_step: "change only options that leave its params as they are, such as alpha and \
                    dropout, or start another run"
            .to_owned(),
    }))
}
