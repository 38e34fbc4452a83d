//! The part of a running job that a swap can change: components, plan and device storage.

use std::sync::Arc;
use std::time::Instant;

use espalier_compile::params::Param;
use espalier_config::{ResolvedConfig, Section};
use espalier_data::StepBatch;
use espalier_engine::executor::{Beside, Executor, PreparedRun, Storage};
use espalier_engine::load::LoadReport;
use espalier_engine::observer::{Event, Observer};
use espalier_engine::ranks::Peers;
use espalier_engine::team::Team;
use espalier_interface::adaptation::Site;
use espalier_interface::{ErrorCode, MemoryKind, Role, WeightLayout};
use espalier_plan::plan::{self, Demand, Flops, HostBytes, RunPlan};
use espalier_plan::trained_weights::TrainedWeights;
use espalier_registry::select::{Components, Replacement};
use espalier_registry::{PluginFailure, PluginIdentity, Registry, SearchPath, answer};
use espalier_system::failure::UsageError;
use espalier_system::files::ModelDirectory;
use espalier_system::memory::{self, OutOfMemory};
use espalier_system::stop::StopFlag;
use espalier_system::threads::HostServices;

use super::record::choices;
use super::room::{self, Needs};
use super::{Stage, Staging, Swap, SwapRecord, SwapRequest, change, trial};
use crate::bytes::Bytes;
use crate::checkpoint::{AdapterParts, plugin_differences};
use crate::session::{describe, open_device};
use crate::weights::Loading;
use crate::{Error, record};

/// The constant part of a run.
pub(crate) struct RunContext<'a> {
    pub model: ModelDirectory,
    pub services: &'static HostServices,
    pub observer: &'a dyn Observer,
    pub stop: &'a StopFlag,
}

/// A job's components, and their plan on the device.
pub(crate) struct Live<'a> {
    // Dropped before the backend of its device.
    pub team: Team,
    pub components: Components,
    /// The config with the swaps so far.
    pub resolved: ResolvedConfig,
    pub facts: Facts,
    pub around: RunContext<'a>,
}

/// Facts about a plan that are known once its executor exists.
pub(crate) struct Facts {
    pub sites: Vec<Site>,
    pub flops: Flops,
    demand: Demand,
    program_bytes: u64,
    /// Planned bytes of a rank's device in a step; 0 where it is the host.
    pub device_bytes: u64,
    plan_sha256: String,
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
struct Made {
    executor: Executor,
    facts: Facts,
    report: LoadReport,
    bytes_beside: u64,
    kind: MemoryKind,
    losses: [f64; 2],
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

impl Live<'_> {
    /// The parts for writing the adapter; `None` where the model itself is trained.
    pub fn adapter<'b>(&'b self, base: &'b str) -> Option<AdapterParts<'b>> {
        let adapter = self.components.adapter.as_ref()?;
        Some((adapter, self.facts.sites.as_slice(), base))
    }

    /// The hash of the present plan.
    pub fn plan_sha256(&self) -> &str {
        &self.facts.plan_sha256
    }

    /// The record of a completed swap in `run.json`.
    pub fn on_record(&self, request: &SwapRequest, record: &SwapRecord) -> Swap {
        let identities = self.components.identities().into_iter();
        Swap {
            record: record.clone(),
            request: request.clone(),
            config: choices(&self.resolved),
            plugins: identities.cloned().collect(),
            plan_sha256: self.facts.plan_sha256.clone(),
        }
    }

    /// Replaces the component of a role, once the new one has passed its test. `record` is filled
    /// in up to the point of failure.
    ///
    /// # Errors
    /// The reason for a failure; the old state is then unchanged.
    pub fn swap(&mut self, attempt: &Attempt<'_>, record: &mut SwapRecord) -> Result<(), Error> {
        let begin = Instant::now();
        let taken = self.take(attempt, record);
        record.secs = begin.elapsed().as_secs_f64();
        taken
    }

    fn take(&mut self, attempt: &Attempt<'_>, record: &mut SwapRecord) -> Result<(), Error> {
        (attempt.progress)(Stage::Planning);
        let request = attempt.request;
        let role = request.role()?;
        record.from = self.components.playing(role).cloned();
        let resolved = change::of(&self.resolved, &self.components, request)?;
        let registry = Registry::discover(&SearchPath::of(&resolved));
        if let Some(name) = request.component() {
            // A component that crashes in a separate probe process is never loaded into this one.
            let options = resolved.config().section(role.0, name);
            registry.probe(role, name, options.unwrap_or(&Section::new()))?;
        }
        let mut replacement = Replacement::make(
            (role, request.component()),
            resolved.config(),
            &self.around.model,
            &registry,
            self.around.services,
        )?;
        self.components.exchange(&mut replacement);
        record.to = self.components.playing(role).cloned();
        registry.places(&record.to).tell();
        let made = self
            .make(&resolved, role, attempt)
            .map_err(|error| error.naming(&self.components.by_role()));
        let made = match made {
            Ok(made) => made,
            Err(error) => {
                self.components.exchange(&mut replacement);
                return Err(error);
            }
        };
        (attempt.progress)(Stage::TakingOver);
        record.encoded = made.report.encoded;
        record.decode_checks = made.report.decode_checks;
        record.bytes_beside = made.bytes_beside;
        record.staged_in = Some(room::shown(made.kind).to_owned());
        [record.loss_before, record.loss_after] = made.losses.map(Some);
        self.facts = made.facts;
        self.resolved = resolved;
        // Drops the old state and its unshared memory.
        drop(std::mem::replace(
            &mut self.team,
            Team::new(vec![made.executor]),
        ));
        if made.kind == MemoryKind::MAPPED
            && let Err(error) = self.team.first_mut().leave_mapped_files()
        {
            let note = format!("weights stay in a mapped file: {error}");
            self.around.observer.observe(&Event::Note(&note));
        }
        Ok(())
    }

    /// Creates the new state beside the old one and tests it; `self.components` are the new ones
    /// already.
    fn make(
        &self,
        resolved: &ResolvedConfig,
        role: Role,
        attempt: &Attempt<'_>,
    ) -> Result<Made, Error> {
        let plugin = self.components.playing(role);
        if let Some(expected) = attempt.expected {
            plugin_differences(Some(expected), plugin)?;
        }
        let old = self.team.only("a swap")?;
        let run = self.prepare(resolved, role)?;
        let plan = &run.plan;
        if plan.step_plan.moves() {
            return Err(Error::Usage(UsageError {
                message: "a running job cannot change to a strategy that moves weights".to_owned(),
                next_step: "stop it and continue with --resume under the other strategy".to_owned(),
            }));
        }
        same_trained_params(old.params(), &plan.params)?;
        let stays: Vec<bool> = old
            .params()
            .iter()
            .zip(&plan.params)
            .map(|(old, new)| {
                let dense = matches!(new.layout, WeightLayout::Dense(_));
                old.layout == new.layout && (dense || role != Role::QUANTIZER)
            })
            .collect();
        let keeps = |unit: usize| {
            let params = plan.params.iter().zip(&stays);
            let mut frozen = params.filter(|(param, _)| !param.trainable && param.unit == unit);
            frozen.all(|(_, stays)| *stays)
        };
        let needs = self.needs(&run, &stays, &keeps);
        let kind = needs.place(
            attempt.request.staging,
            &memory_name(plan),
            plan.available(memory::available_bytes()),
        )?;
        let beside = Beside {
            keeps: &keeps,
            kind,
        };
        let storage = self.storage_beside(&run, &beside, (&needs, attempt))?;
        let loading = Loading::of(
            resolved.config(),
            &self.around.model,
            &self.components,
            attempt.observer,
            self.around.stop,
        );
        let report = loading.fill(&run, &storage, |index, param| {
            !param.trainable && !stays[index]
        })?;
        let facts = Facts::of(plan);
        let new = Executor::new(run, storage, Arc::new(Peers::alone()))?;
        for (index, param) in new.params().iter().enumerate() {
            if !param.trainable && stays[index] {
                new.adopt_frozen(old, index)?;
            }
        }
        new.adopt_state(old)?;
        self.around.stop.check()?;
        (attempt.progress)(Stage::Trying);
        let blamed = plugin.or(self.components.playing(Role::BACKEND));
        let blamed = blamed.expect("a run has a backend");
        let losses = trial::run([old, &new], attempt.next, attempt.at, blamed)?;
        if let Some(adapter) = &self.components.adapter {
            // Errors that would prevent saving the result are reported now.
            answer::saved_config(adapter, &facts.sites, "")?;
        }
        self.around.stop.check()?;
        Ok(Made {
            executor: new,
            facts,
            report,
            bytes_beside: needs.frozen + needs.others,
            kind,
            losses,
        })
    }

    fn prepare(&self, resolved: &ResolvedConfig, role: Role) -> Result<PreparedRun, Error> {
        let config = resolved.config();
        let (device, device_info) = match role {
            Role::BACKEND => open_device(config, &self.components, 0)?,
            _ => self.team.first().device(),
        };
        let model = describe(&self.around.model, &self.components)?;
        let trained = TrainedWeights::of(&config.model, self.around.model.config(), &model)?;
        let plan = plan::make(
            config,
            self.facts.demand,
            model,
            &trained,
            &self.components,
            device_info,
            HostBytes {
                program: self.facts.program_bytes,
                available: memory::available_bytes(),
            },
        )?;
        Ok(PreparedRun::new(plan, device, &self.components.backend)?)
    }

    fn needs(&self, run: &PreparedRun, stays: &[bool], keeps: &dyn Fn(usize) -> bool) -> Needs {
        let plan = &run.plan;
        let (layout, old) = (plan.storage_layout(), self.team.first().storage());
        let [frozen, others] = old.bytes_beside(&run.device, &layout, keeps);
        let mut indices = 0..plan.params.len();
        let loads = indices.any(|index| !plan.params[index].trainable && !stays[index]);
        let same_memory =
            self.team.first().device().1.shares_host_memory == plan.device_info.shares_host_memory;
        let going = self.team.first().params().iter();
        let going = going.filter(|param| !param.trainable && !keeps(param.unit));
        Needs {
            frozen,
            freed: if same_memory {
                going.map(Param::bytes).sum()
            } else {
                0
            },
            others,
            loading: if loads { plan.memory.loading } else { 0 },
        }
    }

    fn storage_beside(
        &self,
        run: &PreparedRun,
        beside: &Beside<'_>,
        (needs, attempt): (&Needs, &Attempt<'_>),
    ) -> Result<Storage, Error> {
        let old = self.team.first().storage();
        let plan = &run.plan;
        let made = old.beside(&run.device, &plan.storage_layout(), beside);
        made.map_err(|error| {
            let no_files = error.code == ErrorCode::UNSUPPORTED
                && beside.kind == MemoryKind::MAPPED
                && attempt.request.staging == Staging::Auto;
            if no_files {
                // The cause was insufficient memory.
                Error::OutOfMemory(OutOfMemory {
                    kind: memory_name(plan),
                    needed: Bytes(needs.beside()),
                    available: Bytes(plan.available(memory::available_bytes())),
                })
            } else {
                Error::from(PluginFailure::new(Role::BACKEND.0, "alloc", error))
            }
        })
    }
}

/// The name of the memory of a plan's weights.
fn memory_name(plan: &RunPlan) -> String {
    if plan.device_info.shares_host_memory {
        "host".to_owned()
    } else {
        plan.device_info.name.clone()
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
