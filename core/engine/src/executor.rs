//! A program on a device: storage for every byte, launches in the schedule's order, and what a step reads back.

mod adopt;
mod allocation;
mod diagnose;
mod disabled_adapter;
mod evaluate;
mod infer;
mod lanes;
mod launch;
mod machine_copy;
mod mover;
mod prepared_run;
mod state;
mod storage;
mod transfer;

use std::sync::Arc;

use espalier_compile::params::{Dtypes, Param};
use espalier_compile::program::Program;
use espalier_data::MicroBatch;
use espalier_interface::model::UnitKind;
use espalier_interface::schedule::{Act, Placement, When};
use espalier_interface::{Device, DeviceInfo, PluginError, Quantizer, Stream};
use espalier_plan::plan::Generation;
use espalier_plan::shard_layout::ShardLayout;
use espalier_plan::step_plan::{Region, RegionKind, StepPlan, Task};
use espalier_plan::storage_layout::StateKind;
use espalier_registry::Chosen;

use crate::error::{BackendCall, Result};
use crate::measure;
use crate::ranks::Peers;

pub use diagnose::NotFiniteTensor;
pub use disabled_adapter::disabled_adapter_bytes;
pub use evaluate::{LogitsWindow, TokenLosses};
pub use launch::PreparedKernels;
pub use prepared_run::PreparedRun;
pub use state::StatePart;

pub use storage::{Beside, Storage};
pub use transfer::{numbers, write};

use lanes::walk;
use launch::{Numbers, Window};
use machine_copy::Lent;

/// What a pass over a micro-batch is for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pass {
    /// Forward alone, without dropout.
    Evaluate,
    /// Forward and backward.
    Train {
        /// One over the step's trained tokens.
        loss_factor: f64,
    },
}

/// A micro-batch's place in its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The run's seed.
    pub seed: u64,
    /// The optimizer step, from 0.
    pub step: u64,
    /// Whether it is the first micro-batch of its step.
    pub first: bool,
    /// Whether it is the last.
    pub last: bool,
}

/// Sums over the trained tokens of a micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossSum {
    /// Sum of the losses.
    pub loss: f64,
    /// Tokens whose likeliest prediction was right.
    pub correct: u64,
    /// Trained tokens.
    pub trained: u64,
}

/// Numbers of an update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// Learning rate of this step.
    pub learning_rate: f64,
    /// Decay of the first and second moment.
    pub betas: [f64; 2],
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Updates so far, this one included.
    pub step: u64,
    /// Factor of the gradients: what clipping leaves of them.
    pub factor: f64,
}

/// A program, its storage and its kernels on one device.
pub struct Executor {
    device: Arc<dyn Device>,
    device_info: DeviceInfo,
    program: Program,
    generator: Option<Program>,
    generation: Option<Generation>,
    step_plan: StepPlan,
    shard_layout: ShardLayout,
    peers: Arc<Peers>,
    /// The stream of what moves bytes.
    moving: Stream,
    params: Vec<Param>,
    dtypes: Dtypes,
    storage: Storage,
    /// Kept for what is fetched from it.
    lent: Option<Lent>,
    prepared: PreparedKernels,
    /// Kept for the kernels that call back into a quantizer.
    _quantizers: Vec<Chosen<dyn Quantizer>>,
}

impl Executor {
    /// Puts a run and its storage together, for a rank among `peers`. Weights are written by [`crate::load`].
    ///
    /// # Errors
    /// Where the device has no stream left for what moves bytes.
    pub fn new(run: PreparedRun, storage: Storage, peers: Arc<Peers>) -> Result<Self> {
        let PreparedRun {
            plan,
            device,
            kernels,
        } = run;
        let moving = if plan.step_plan.moves() {
            device.stream().during("stream")?
        } else {
            Stream(0)
        };
        Ok(Executor {
            device,
            device_info: plan.device_info,
            program: plan.program,
            generator: plan.generator,
            generation: plan.demand.generation,
            step_plan: plan.step_plan,
            shard_layout: plan.shard_layout,
            peers,
            moving,
            params: plan.params,
            dtypes: plan.dtypes,
            storage,
            lent: None,
            prepared: kernels,
            _quantizers: plan.quantizers.into_values().collect(),
        })
    }

    /// This rank's way to the others.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Whether all weights lie whole on the device between steps.
    pub fn is_resident(&self) -> bool {
        (0..self.program.units.len()).all(|unit| self.shard_layout.is_resident(unit))
    }

    /// Where the bytes of each unit lie between steps.
    pub fn placements(&self) -> &[Placement] {
        &self.shard_layout.placements
    }

    /// The run's params.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// The device, and what it says of itself.
    pub fn device(&self) -> (Arc<dyn Device>, DeviceInfo) {
        (Arc::clone(&self.device), self.device_info.clone())
    }

    /// Bytes that the device holds for the run.
    pub fn device_bytes(&self) -> u64 {
        self.storage.bytes()
    }

    /// Operations a second of the device's own product, timed between two steps in the memory that a step works in; nothing
    /// where that is too small, or the device refuses.
    pub fn product_rate(&self) -> Option<f64> {
        let (device, room) = (self.device.as_ref(), self.storage.arena());
        let rate = measure::gemm_rate_within(device, self.dtypes.compute, room);
        rate.ok().flatten()
    }

    /// Runs a micro-batch through the schedule. Gradients are added to those of the step so far.
    ///
    /// # Errors
    /// What the backend reports; `UNSUPPORTED` for an action this executor does not know.
    pub fn micro_batch(&self, micro: &MicroBatch, pass: Pass, moment: Moment) -> Result<LossSum> {
        let numbers = self.pass(micro, pass, moment, &mut |_| Ok(()))?;
        let losses = self.token_losses(&numbers)?;
        Ok(losses.sum(micro, 0..micro.tokens.len()))
    }

    /// As [`Executor::micro_batch`], showing `look` the logits of each window of the head before the next.
    fn pass(
        &self,
        micro: &MicroBatch,
        pass: Pass,
        moment: Moment,
        look: &mut dyn FnMut(&LogitsWindow<'_>) -> Result<()>,
    ) -> Result<Numbers> {
        let numbers = self.begin(micro, pass, moment)?;
        let tasks = &self.step_plan.micro_batch;
        let wanted = self.wanted(pass, moment);
        let mut compute = |task: &Task| self.compute(task, pass, moment, &numbers, look);
        walk(tasks, &wanted, &mut compute, &|task| {
            self.transfer(task, Some(&numbers))
        })?;
        Ok(numbers)
    }

    /// Which tasks take part in a pass. One that does not train ends with the head's forward pass.
    fn wanted(&self, pass: Pass, moment: Moment) -> impl Fn(usize, &Task) -> bool + use<> {
        let head = self.program.units.len() - 1;
        let mut tasks = self.step_plan.micro_batch.iter();
        let end =
            tasks.position(|task| task.action.act == Act::Forward && task.action.unit == head);
        let trains = matches!(pass, Pass::Train { .. });
        move |index, task| {
            let now = match task.action.when {
                When::Every => true,
                When::First => moment.first,
                When::Last => moment.last,
            };
            let forward = matches!(
                task.action.act,
                Act::Fetch | Act::Gather | Act::Forward | Act::Release
            );
            now && (trains || (forward && end.is_some_and(|end| index <= end)))
        }
    }

    /// Does a task of a micro-batch on the compute lane.
    fn compute(
        &self,
        task: &Task,
        pass: Pass,
        moment: Moment,
        numbers: &Numbers,
        look: &mut dyn FnMut(&LogitsWindow<'_>) -> Result<()>,
    ) -> Result<()> {
        let trains = matches!(pass, Pass::Train { .. });
        for &(unit, when) in task.begins.iter().filter(|_| trains) {
            if when == When::Every && !moment.first {
                // The plan was made for one; what the others add would be lost.
                let message = "a step of several micro-batches, expected one for each rank";
                return Err(PluginError::invalid(message).into());
            }
            if moment.first {
                self.zero_region(task, unit)?;
            }
        }
        let unit = task.action.unit;
        match task.action.act {
            // A rank without tokens joins in what moves bytes only.
            Act::Forward | Act::Backward if numbers.tokens == 0 => Ok(()),
            Act::Forward if self.program.units[unit].kind == UnitKind::Head => {
                self.head(task, pass, numbers, look)
            }
            Act::Forward => self.forward(task, numbers),
            Act::Backward => self.backward(task, numbers),
            Act::Norm => self.sum_squares(unit, task.region(unit, RegionKind::Reduced)),
            _ => self.transfer(task, Some(numbers)),
        }
    }

    /// The logits of a micro-batch, `[T, V]` row major, as f64 of the compute dtype's values.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn logits(&self, micro: &MicroBatch, moment: Moment) -> Result<Vec<f64>> {
        let row = self.logits_row_bytes()?;
        let mut logits = Vec::new();
        self.pass(micro, Pass::Evaluate, moment, &mut |window| {
            let tokens = window.tokens();
            let mut bytes = vec![0; ((tokens.end - tokens.start) * row) as usize];
            window.read(tokens, &mut bytes)?;
            logits.extend(numbers(&bytes, self.logits_dtype()));
            Ok(())
        })?;
        Ok(logits)
    }

    /// Uploads the batch and fixes the numbers of its launches.
    fn begin(&self, micro: &MicroBatch, pass: Pass, moment: Moment) -> Result<Numbers> {
        self.storage
            .upload_batch(self.device.as_ref(), micro)
            .during("upload")?;
        let loss_factor = match pass {
            Pass::Evaluate => 0.0,
            Pass::Train { loss_factor } => loss_factor,
        };
        Ok(Numbers {
            tokens: micro.tokens.len() as u64,
            sequences: (micro.cu_seqlens.len() - 1) as u64,
            seed: moment.seed,
            step: moment.step,
            loss_factor,
            evaluate: pass == Pass::Evaluate,
        })
    }

    fn forward(&self, task: &Task, numbers: &Numbers) -> Result<()> {
        let window = Window::whole(numbers.tokens);
        self.prepared.units[task.action.unit]
            .forward
            .iter()
            .try_for_each(|launch| self.launch(launch, numbers, window, &task.regions))
    }

    fn backward(&self, task: &Task, numbers: &Numbers) -> Result<()> {
        let window = Window::whole(numbers.tokens);
        self.prepared.units[task.action.unit]
            .backward
            .iter()
            .try_for_each(|launch| self.launch(launch, numbers, window, &task.regions))
    }

    /// The head in chunks of tokens: forward and, when training, backward of each before the next.
    fn head(
        &self,
        task: &Task,
        pass: Pass,
        numbers: &Numbers,
        look: &mut dyn FnMut(&LogitsWindow<'_>) -> Result<()>,
    ) -> Result<()> {
        let unit = task.action.unit;
        let launches = &self.prepared.units[unit];
        for window in numbers.windows(self.program.units[unit].max_tokens) {
            for launch in &launches.forward {
                self.launch(launch, numbers, window, &task.regions)?;
            }
            look(&LogitsWindow::new(self, window))?;
            if matches!(pass, Pass::Train { .. }) {
                for launch in &launches.backward {
                    self.launch(launch, numbers, window, &task.regions)?;
                }
            }
        }
        Ok(())
    }

    /// Sets the gradients of a unit that a task begins to zero.
    fn zero_region(&self, task: &Task, unit: usize) -> Result<()> {
        let region = task.region(unit, RegionKind::Gradients);
        let (Some(region), Some(kernels)) = (region, &self.prepared.trained[unit]) else {
            return Ok(());
        };
        let range = self.storage.region(region.offset, region.bytes);
        self.launch_flat(&kernels.zero, &[range], &[])
    }

    /// Sets all gradients to zero that are not cut; others begin from zero in a step's first micro-batch.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn zero_gradients(&self) -> Result<()> {
        match &self.prepared.zero_whole {
            Some(zero) => self.launch_flat(zero, &[self.storage.whole_gradients()], &[]),
            None => Ok(()),
        }
    }

    /// Adds up the squares of a unit's gradients, as far as this rank keeps them.
    fn sum_squares(&self, unit: usize, region: Option<Region>) -> Result<()> {
        let Some(kernels) = &self.prepared.trained[unit] else {
            return Ok(());
        };
        let kept = match region {
            Some(region) => self.storage.region(region.offset, region.bytes),
            None => self.storage.kept(unit, StateKind::Gradients),
        };
        let ranges = [kept, self.storage.unit_result(unit)];
        self.launch_flat(&kernels.sum_squares, &ranges, &[])
    }

    /// For each unit the sum of the squares of its gradients, as far as this rank keeps them: of the whole of what is not
    /// cut, of this rank's part of what is.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn gradient_squares(&self) -> Result<Vec<f64>> {
        let mut tasks = self.step_plan.micro_batch.iter();
        let added_up = tasks.any(|task| task.action.act == Act::Norm);
        let mut squares = vec![0.0; self.program.units.len()];
        for (unit, square) in squares.iter_mut().enumerate() {
            if self.prepared.trained[unit].is_none() {
                continue;
            }
            if !added_up {
                self.sum_squares(unit, None)?;
            }
            let mut bytes = [0u8; 8];
            let result = self.storage.unit_result(unit);
            let read = self.device.download(result, &mut bytes, Stream(0));
            read.during("download")?;
            *square = f64::from_le_bytes(bytes);
        }
        Ok(squares)
    }

    /// The norm of all gradients together, given what every rank says of its own; 0 where nothing is trained.
    pub fn gradient_norm(&self, squares: &[&[f64]]) -> f64 {
        let parts = self.shard_layout.parts as usize;
        let of_unit = |unit: usize| -> f64 {
            if self.shard_layout.is_cut(unit) {
                squares.iter().take(parts).map(|rank| rank[unit]).sum()
            } else {
                squares[0][unit]
            }
        };
        let units = 0..self.program.units.len();
        units.map(of_unit).sum::<f64>().sqrt()
    }

    /// Updates the trainable params in the schedule's order.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn update(&self, update: &Update) -> Result<()> {
        let scalars = [
            update.learning_rate,
            update.betas[0],
            update.betas[1],
            update.eps,
            update.weight_decay,
            update.step as f64,
            update.factor,
        ];
        let mut compute = |task: &Task| match task.action.act {
            Act::Optimize => self.optimize(task, &scalars),
            _ => self.transfer(task, None),
        };
        let all = |_: usize, _: &Task| true;
        walk(&self.step_plan.update, &all, &mut compute, &|task| {
            self.transfer(task, None)
        })
    }

    fn optimize(&self, task: &Task, scalars: &[f64]) -> Result<()> {
        let unit = task.action.unit;
        let Some(kernels) = &self.prepared.trained[unit] else {
            return Ok(());
        };
        let [mut gradients, mut values, mut first, mut second] =
            self.storage.optimizer_ranges(unit);
        let region = |held| {
            let region = task.region(unit, held)?;
            Some(self.storage.region(region.offset, region.bytes))
        };
        if let Some(fetched) = region(RegionKind::Reduced) {
            gradients = fetched;
        }
        if let Some(fetched) = region(RegionKind::Values) {
            values = fetched;
        }
        if let Some(fetched) = region(RegionKind::Moments) {
            let each = fetched.bytes / 2;
            first = storage::part(fetched, &(0..each), 1);
            second = storage::part(fetched, &(each..fetched.bytes), 1);
        }
        let ranges = [gradients, values, first, second];
        self.launch_flat(&kernels.adamw, &ranges, scalars)
    }
}
