//! A program on a device: storage for every byte, launches in the schedule's order, and what a step reads back.

mod adopt;
mod allocation;
mod course;
mod diagnose;
mod evaluate;
mod infer;
mod launch;
mod neutral;
mod order;
mod state;
mod storage;
mod transfer;

use std::sync::Arc;

use espalier_interface::model::UnitKind;
use espalier_interface::schedule::{Act, Schedule, When};
use espalier_interface::{Device, DeviceInfo, Quantizer, Stream};

use crate::data::MicroBatch;
use crate::error::{BackendCall, Result};
use crate::params::{Dtypes, Param};
use crate::plan::{Generation, RunPlan};
use crate::program::Program;
use crate::select::Chosen;

pub use course::{Course, Held, Lane, Leg, Region, RegionSizes};
pub use diagnose::NotFinite;
pub use evaluate::{LogitsWindow, TokenLosses};
pub use launch::Prepared;
pub use neutral::neutral_bytes;
pub use order::check_order;
pub use state::StatePart;
pub use storage::{Beside, Sizes, Storage, StorageLayout, UnitRuns, part_length};
pub(crate) use transfer::{numbers, write};

use launch::{Numbers, Window};

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
    schedule: Schedule,
    params: Vec<Param>,
    dtypes: Dtypes,
    storage: Storage,
    prepared: Prepared,
    /// Kept for the kernels that call back into a quantizer.
    _quantizers: Vec<Chosen<dyn Quantizer>>,
}

impl Executor {
    /// Puts a plan and its storage together. Weights are written by [`crate::load`].
    pub fn new(plan: RunPlan, storage: Storage) -> Self {
        Executor {
            device: plan.device,
            device_info: plan.device_info,
            program: plan.program,
            generator: plan.generator,
            generation: plan.demand.generation,
            schedule: plan.schedule,
            params: plan.params,
            dtypes: plan.dtypes,
            storage,
            prepared: plan.prepared,
            _quantizers: plan.quantizers.into_values().collect(),
        }
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
        for action in &self.schedule.micro_batch {
            let now = match action.when {
                When::Every => true,
                When::First => moment.first,
                When::Last => moment.last,
            };
            if !now {
                continue;
            }
            match action.act {
                Act::Forward if self.program.units[action.unit].kind == UnitKind::Head => {
                    self.head(action.unit, pass, &numbers, look)?;
                }
                Act::Forward => self.forward(action.unit, &numbers)?,
                Act::Backward if matches!(pass, Pass::Train { .. }) => {
                    self.backward(action.unit, &numbers)?;
                }
                Act::Backward => {}
                other => return Err(order::unsupported(other).into()),
            }
        }
        Ok(numbers)
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

    fn forward(&self, unit: usize, numbers: &Numbers) -> Result<()> {
        let window = Window::whole(numbers.tokens);
        self.prepared.units[unit]
            .forward
            .iter()
            .try_for_each(|launch| self.launch(launch, numbers, window))
    }

    fn backward(&self, unit: usize, numbers: &Numbers) -> Result<()> {
        let window = Window::whole(numbers.tokens);
        self.prepared.units[unit]
            .backward
            .iter()
            .try_for_each(|launch| self.launch(launch, numbers, window))
    }

    /// The head in chunks of tokens: forward and, when training, backward of each before the next.
    fn head(
        &self,
        unit: usize,
        pass: Pass,
        numbers: &Numbers,
        look: &mut dyn FnMut(&LogitsWindow<'_>) -> Result<()>,
    ) -> Result<()> {
        let launches = &self.prepared.units[unit];
        for window in numbers.windows(self.program.units[unit].max_tokens) {
            for launch in &launches.forward {
                self.launch(launch, numbers, window)?;
            }
            look(&LogitsWindow::new(self, window))?;
            if matches!(pass, Pass::Train { .. }) {
                for launch in &launches.backward {
                    self.launch(launch, numbers, window)?;
                }
            }
        }
        Ok(())
    }

    /// Sets all gradients to zero.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn zero_gradients(&self) -> Result<()> {
        match &self.prepared.gradients {
            Some(kernels) => self.launch_flat(&kernels.zero, &[self.storage.gradients()], &[]),
            None => Ok(()),
        }
    }

    /// The norm of all gradients together; 0 where nothing is trained.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn gradient_norm(&self) -> Result<f64> {
        let Some(kernels) = &self.prepared.gradients else {
            return Ok(0.0);
        };
        let result = self.storage.result();
        let ranges = [self.storage.gradients(), result];
        self.launch_flat(&kernels.sum_squares, &ranges, &[])?;
        let mut bytes = [0u8; 8];
        self.device.download(result, &mut bytes, Stream(0))?;
        Ok(f64::from_le_bytes(bytes).sqrt())
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
        for action in self
            .schedule
            .update
            .iter()
            .filter(|action| action.act == Act::Optimize)
        {
            if let Some(kernel) = &self.prepared.adamw[action.unit] {
                let ranges = self.storage.optimizer_ranges(action.unit);
                self.launch_flat(kernel, &ranges, &scalars)?;
            }
        }
        Ok(())
    }
}
