//! Config keys -> the ranks of this process with a loaded model, without rows: tests supply their
//! own steps.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use espalier_config::{Config, resolve};
use espalier_data::{MicroBatch, StepBatch};
use espalier_engine::executor::{Executor, PreparedRun, StatePart};
use espalier_engine::load::LoadReport;
use espalier_engine::observer::Unobserved;
use espalier_engine::ranks::Counts;
use espalier_engine::step::{self, StepOutcome};
use espalier_engine::team::Team;
use espalier_interface::DType;
use espalier_interface::optimizer::OptimizerSpec;
use espalier_plan::plan::Purpose;
use espalier_registry::select::Components;
use espalier_system::memory::Meter;
use espalier_system::stop::StopFlag;
use espalier_trainer::session::{ProcessContext, Session};
use espalier_trainer::{Error, weights};
use half::bf16;

use crate::own_op::{OwnKernel, OwnOp};
use crate::rig::{position, sources};

/// Trainable params by name, each with its numbers.
pub type Named = Vec<(String, Vec<f64>)>;

/// The ranks of this process with a loaded model.
pub struct TeamRig {
    /// Its config.
    pub config: Config,
    /// Its ranks.
    pub team: Team,
    /// The load report.
    pub loaded: LoadReport,
    /// Planned device bytes of the first rank.
    pub planned: u64,
}

impl TeamRig {
    /// Loads the model in `directory` under config keys such as `("run.ranks", "4")`. All rigs of a
    /// process share its threads.
    ///
    /// # Panics
    /// If that fails, with the error's message.
    pub fn new(directory: &Path, keys: &[(&str, &str)]) -> Self {
        Self::try_new(directory, keys).unwrap_or_else(|error| panic!("{keys:?}: {error:?}"))
    }

    /// As [`TeamRig::new`].
    ///
    /// # Errors
    /// The error of planning or loading.
    pub fn try_new(directory: &Path, keys: &[(&str, &str)]) -> Result<Self, Error> {
        TeamRig::load(directory, keys, &|run, _| Ok(run))
    }

    /// As [`TeamRig::new`], with `optimizer` in place of the config's, which has the same op. Its
    /// kernel on every device is `own`.
    ///
    /// # Panics
    /// If that fails, with the error's message.
    pub fn with_optimizer(
        directory: &Path,
        keys: &[(&str, &str)],
        optimizer: &OptimizerSpec,
        own: OwnKernel,
    ) -> Self {
        let made = TeamRig::load(directory, keys, &|run, components| {
            let PreparedRun {
                mut plan, device, ..
            } = run;
            let planned = std::mem::replace(&mut plan.shard_layout.optimizer, optimizer.clone());
            assert_eq!(planned.op, optimizer.op, "{keys:?}");
            plan.shard_by(&components.sharding)?;
            let device = Arc::new(OwnOp::new(device, &optimizer.op, own));
            Ok(PreparedRun::new(plan, device, &components.backend)?)
        });
        made.unwrap_or_else(|error| panic!("{keys:?}: {error:?}"))
    }

    /// Loads what `prepare` makes of the session's runs.
    fn load(
        directory: &Path,
        keys: &[(&str, &str)],
        prepare: &dyn Fn(PreparedRun, &Components) -> Result<PreparedRun, Error>,
    ) -> Result<Self, Error> {
        static PROCESS_CONTEXT: OnceLock<ProcessContext> = OnceLock::new();
        let resolved = resolve(&sources(directory, keys))?;
        let (stop, meter) = (StopFlag::new(), Meter::whole_process());
        let process_context = PROCESS_CONTEXT.get_or_init(|| {
            ProcessContext::start(resolved.config(), &stop).expect("a few threads")
        });
        let purpose = Purpose::Train;
        let session = Session::open_among(
            &resolved,
            purpose,
            process_context,
            &meter,
            &Unobserved,
            &stop,
        )?;
        let config = resolved.config().clone();
        let Session {
            directory,
            components,
            run,
            others,
            collectives,
            ..
        } = session;
        let planned = run.plan.memory.on_device();
        let runs = std::iter::once(run).chain(others);
        let runs = runs.map(|run| prepare(run, &components));
        let runs = runs.collect::<Result<Vec<_>, Error>>()?;
        let (team, loaded) = weights::load_team(
            &config,
            &directory,
            &components,
            runs,
            &collectives,
            &Unobserved,
        )?;
        Ok(TeamRig {
            config,
            team,
            loaded,
            planned,
        })
    }

    /// Runs one step's passes on all ranks and returns the mean loss; gradients stay on the
    /// devices.
    pub fn loss_and_gradients(&self, step: &StepBatch) -> f64 {
        let seed = self.config.run.seed;
        let losses = self
            .team
            .each(|executor| step::gradients(executor, step, 0, seed));
        losses.expect("gradients").iter().sum()
    }

    /// The logits of a micro-batch that every rank computes, `[T, V]`.
    ///
    /// # Panics
    /// If a bit differs between ranks.
    pub fn logits(&self, micro: &MicroBatch) -> Vec<f64> {
        let found = self
            .team
            .each(|executor| executor.logits(micro, position()));
        let mut found = found.expect("logits").into_iter();
        let first = found.next().expect("a rank");
        assert!(found.all(|other| other == first), "ranks differ in logits");
        first
    }

    /// Trains steps, the first of which is number 0.
    pub fn train(&self, steps: &[StepBatch]) -> Vec<StepOutcome> {
        let Config { optim, run, .. } = &self.config;
        let total = steps.len() as u64;
        let steps = steps.iter().enumerate();
        let outcomes = steps.map(|(index, step)| {
            let outcome = self
                .team
                .train(optim, step, [index as u64, total], run.seed);
            outcome.expect("a step")
        });
        outcomes.collect()
    }

    /// The calls of each rank so far.
    pub fn counts(&self) -> Vec<Counts> {
        let ranks = self.team.executors().iter();
        ranks.map(|executor| executor.peers().counts()).collect()
    }

    /// The reduced gradients of the last step, combined from all ranks.
    pub fn gradients(&self) -> Named {
        self.together(StatePart::Values, |executor, param| {
            executor.gradient_values(param).expect("a trained param")
        })
    }

    /// Each tensor of the optimizer's state of all trainable params that have it, combined from all
    /// ranks.
    pub fn optimizer_state(&self) -> Vec<Named> {
        let tensors = 0..self.team.first().optimizer().tensors().len();
        let parts = tensors.map(StatePart::State);
        parts.map(|part| self.state(part)).collect()
    }

    /// A part of the state of all trainable params that have it, combined from all ranks.
    pub fn state(&self, part: StatePart) -> Named {
        self.together(part, |executor, param| {
            let dtype = executor.state_dtype(param, part);
            let mut values = Vec::new();
            let take = &mut |bytes: &[u8]| {
                values.extend(numbers(bytes, dtype));
                Ok::<_, espalier_engine::Error>(())
            };
            let read = executor.download_state(param, part, take);
            read.expect("a trained param");
            values
        })
    }

    /// The value that `own` reads of each trainable param on each rank, combined. Ranks with the
    /// same part agree bit for bit.
    fn together(&self, part: StatePart, own: impl Fn(&Executor, usize) -> Vec<f64>) -> Named {
        let first = self.team.first();
        let of_param = |param: usize| {
            let all = &first.params()[param];
            let elements: u64 = first.state_shape(param, part).iter().product();
            let mut whole: Vec<Option<f64>> = vec![None; elements as usize];
            for executor in self.team.executors() {
                let at = executor.own_elements(param, part);
                let places = &mut whole[at.start as usize..at.end as usize];
                for (place, found) in places.iter_mut().zip(own(executor, param)) {
                    let before = place.replace(found).unwrap_or(found);
                    assert_eq!(
                        before.to_bits(),
                        found.to_bits(),
                        "ranks differ in `{}`",
                        all.name
                    );
                }
            }
            let whole: Option<Vec<f64>> = whole.into_iter().collect();
            (
                all.name.clone(),
                whole.expect("some rank holds each element"),
            )
        };
        let trainable = first.trainable().into_iter();
        let having = trainable.filter(|&param| first.state_parts(param).contains(&part));
        having.map(of_param).collect()
    }
}

/// Little-endian elements.
fn numbers(bytes: &[u8], dtype: DType) -> Vec<f64> {
    match dtype {
        DType::F64 => {
            let elements = bytes.chunks_exact(8);
            elements
                .map(|x| f64::from_le_bytes(x.try_into().expect("8 bytes")))
                .collect()
        }
        DType::F32 => {
            let elements = bytes.chunks_exact(4);
            elements
                .map(|x| f32::from_le_bytes(x.try_into().expect("4 bytes")).into())
                .collect()
        }
        DType::BF16 => {
            let elements = bytes.chunks_exact(2);
            elements
                .map(|x| bf16::from_le_bytes(x.try_into().expect("2 bytes")).to_f64())
                .collect()
        }
        DType::U8 => bytes.iter().map(|&code| f64::from(code)).collect(),
        other => panic!("tests read f32, f64, bf16 and u8, found {other}"),
    }
}
