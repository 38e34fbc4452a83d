//! Config keys -> a loaded model on the CPU, without rows: tests supply their own micro-batches.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use espalier_config::{Config, ResolvedConfig, Sources, resolve};
use espalier_data::{MicroBatch, StepBatch};
use espalier_engine::executor::{Executor, PreparedRun, StepPosition};
use espalier_engine::load::LoadReport;
use espalier_engine::observer::Unobserved;
use espalier_engine::step;
use espalier_interface::adaptation::Site;
use espalier_plan::plan::MemoryPlan;
use espalier_registry::select::Components;
use espalier_trainer::session::Session;
use espalier_trainer::{Error, weights};

use crate::own_op::{OwnKernel, OwnOp};

/// A loaded model.
pub struct Rig {
    /// Its config.
    pub config: Config,
    /// Its executor.
    pub executor: Executor,
    /// Its plugins.
    pub components: Components,
    /// Its sites.
    pub sites: Vec<Site>,
    /// Its plan's memory.
    pub memory: MemoryPlan,
    /// The load report.
    pub loaded: LoadReport,
    names: HashMap<String, usize>,
}

impl Rig {
    /// Loads the model in `directory` under config keys such as `("model.compute", "\"f32\"")`.
    ///
    /// # Panics
    /// If that fails, with the error's message.
    pub fn new(directory: &Path, keys: &[(&str, &str)]) -> Self {
        Self::try_new(directory, keys).unwrap_or_else(|error| panic!("{error:?}"))
    }

    /// As [`Rig::new`].
    ///
    /// # Errors
    /// The error of planning or loading.
    pub fn try_new(directory: &Path, keys: &[(&str, &str)]) -> Result<Self, Error> {
        Rig::load(directory, keys, |run, _| Ok(run))
    }

    /// As [`Rig::new`], where `own` is the device's kernel of `op`.
    ///
    /// # Panics
    /// If that fails, with the error's message.
    pub fn with_own_op(directory: &Path, keys: &[(&str, &str)], op: &str, own: OwnKernel) -> Self {
        let made = Rig::load(directory, keys, |run, components| {
            let PreparedRun { plan, device, .. } = run;
            let device = Arc::new(OwnOp::new(device, op, own));
            Ok(PreparedRun::new(plan, device, &components.backend)?)
        });
        made.unwrap_or_else(|error| panic!("{error:?}"))
    }

    /// Loads what `prepare` makes of the session's run.
    fn load(
        directory: &Path,
        keys: &[(&str, &str)],
        prepare: impl FnOnce(PreparedRun, &Components) -> Result<PreparedRun, Error>,
    ) -> Result<Self, Error> {
        let resolved = config_of(directory, keys);
        let session = Session::open(&resolved, &Unobserved)?;
        let Session {
            directory,
            components,
            run,
            ..
        } = session;
        let run = prepare(run, &components)?;
        let (sites, memory) = (run.plan.sites.clone(), run.plan.memory);
        let config = resolved.config().clone();
        let (executor, loaded) = weights::load(&config, &directory, &components, run, &Unobserved)?;
        let names = executor.params().iter().enumerate();
        let names = names
            .map(|(index, param)| (param.name.clone(), index))
            .collect();
        Ok(Rig {
            config,
            executor,
            components,
            sites,
            memory,
            loaded,
            names,
        })
    }

    /// The index of the param called `name`.
    ///
    /// # Panics
    /// If there is none.
    pub fn param(&self, name: &str) -> usize {
        *self
            .names
            .get(name)
            .unwrap_or_else(|| panic!("no param `{name}`"))
    }

    /// Sets the params that a golden file names.
    pub fn set_params(&self, golden: &crate::Golden) {
        let names: Vec<String> = golden.names().map(str::to_owned).collect();
        self.set_some_params(golden, &names);
    }

    /// Sets the params called `names` to a golden file's values.
    ///
    /// # Panics
    /// Where the model or the file lacks one.
    pub fn set_some_params(&self, golden: &crate::Golden, names: &[String]) {
        for name in names {
            let values: Vec<f32> = golden.numbers(name).iter().map(|&x| x as f32).collect();
            self.executor
                .set_param(self.param(name), &values)
                .expect("a dense param");
        }
    }

    /// The logits of a micro-batch, `[T, V]`.
    pub fn logits(&self, micro: &MicroBatch) -> Vec<f64> {
        self.executor.logits(micro, position()).expect("logits")
    }

    /// Runs one step's passes and returns the mean loss; gradients stay on the device.
    pub fn loss_and_gradients(&self, step: &StepBatch) -> f64 {
        step::gradients(&self.executor, step, 0, self.config.run.seed).expect("gradients")
    }

    /// The gradient of the param called `name`.
    pub fn gradient(&self, name: &str) -> Vec<f64> {
        self.executor
            .gradient_values(self.param(name))
            .expect("a trainable param")
    }

    /// The values of the param called `name`.
    pub fn values(&self, name: &str) -> Vec<f64> {
        self.executor
            .param_values(self.param(name))
            .expect("a dense param")
    }
}

/// The position of a single micro-batch.
pub(crate) fn position() -> StepPosition {
    StepPosition {
        seed: 42,
        step: 0,
        first: true,
        last: true,
    }
}

fn config_of(directory: &Path, keys: &[(&str, &str)]) -> ResolvedConfig {
    resolve(&sources(directory, keys)).unwrap_or_else(|error| panic!("{error}"))
}

/// The environment variable that names the backend of all rigs, such as `tch`. Its library is
/// found by `HOST_PLUGIN_PATH`. So `cargo xtask backends` compares each backend with the golden
/// data.
const BACKEND: &str = "ESPALIER_TEST_BACKEND";

/// The environment variable with a setting of all rigs, as `--set` takes it: an option of that
/// backend.
const SET: &str = "ESPALIER_TEST_SET";

/// The model in `directory`, and keys with their values, on the backend that the environment names.
pub(crate) fn sources(directory: &Path, keys: &[(&str, &str)]) -> Sources {
    let mut sources = Sources::default().set(format!("model.path={:?}", directory));
    if let Ok(backend) = std::env::var(BACKEND) {
        sources = sources.set(format!("run.backend={backend:?}"));
    }
    if let Ok(setting) = std::env::var(SET) {
        sources = sources.set(setting);
    }
    for (key, value) in keys {
        sources = sources.set(format!("{key}={value}"));
    }
    sources
}

/// Packs rows of tokens into a micro-batch. `labels` are aligned with the tokens as in
/// transformers: the model predicts the next one, -100 is not trained.
pub fn micro_batch(tokens: &[Vec<i32>], labels: &[Vec<i32>]) -> MicroBatch {
    let mut micro = MicroBatch {
        cu_seqlens: vec![0],
        ..MicroBatch::default()
    };
    for (sequence, (row, labels)) in tokens.iter().zip(labels).enumerate() {
        micro.tokens.extend(row);
        micro.positions.extend(0..row.len() as i32);
        micro
            .labels
            .extend(labels[1..].iter().copied().chain([-100]));
        micro.sequences.push(sequence as i32);
        micro.cu_seqlens.push(micro.tokens.len() as i32);
    }
    micro.num_trained = micro.labels.iter().filter(|&&label| label >= 0).count();
    micro
}

/// A step of one micro-batch.
pub fn step_of(micro_batches: Vec<MicroBatch>) -> StepBatch {
    let trained_tokens = micro_batches.iter().map(|micro| micro.num_trained).sum();
    StepBatch {
        epoch: 0,
        micro_batches,
        trained_tokens,
    }
}
