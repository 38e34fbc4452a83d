//! The micro-batches of a sweep -> the tasks of a pass, done in the schedule's order.

use espalier_data::MicroBatch;
use espalier_interface::PluginError;
use espalier_interface::model::UnitKind;
use espalier_interface::schedule::{Act, When};
use espalier_numeric::numbers;
use espalier_plan::plan::Labelled;
use espalier_plan::plan::flops::pairs_of;
use espalier_plan::step_plan::{RegionKind, Task};

use super::evaluate::{LogitsWindow, OnLogits};
use super::lanes::walk;
use super::window::{Numbers, Window};
use super::{Executor, LossSum, Pass, StepPosition};
use crate::error::{Result, schedule_failure};

impl Executor {
    /// Most micro-batches of a sweep: each unit runs them in turn, while its weights are held.
    pub fn micro_batches_per_fetch(&self) -> usize {
        self.shard_layout.sweep.max(1) as usize
    }

    /// Runs a micro-batch through the schedule. Gradients are added to those of the step so far.
    ///
    /// # Errors
    /// `Error::Plugin`: a call to the backend failed, or the schedule asks for what this executor
    /// does not do.
    pub fn micro_batch(
        &self,
        micro: &MicroBatch,
        pass: Pass<'_>,
        position: StepPosition,
    ) -> Result<LossSum> {
        let sums = self.sweep(&[micro], pass, position)?;
        Ok(sums[0])
    }

    /// As [`Executor::micro_batch`], of at most [`Executor::micro_batches_per_fetch`] of them. Each
    /// unit runs all of them before the next unit, and adds to its gradients in their order.
    /// Returns the sums of each.
    ///
    /// # Panics
    /// Where there are more.
    ///
    /// # Errors
    /// As there.
    pub fn sweep(
        &self,
        micro_batches: &[&MicroBatch],
        pass: Pass<'_>,
        position: StepPosition,
    ) -> Result<Vec<LossSum>> {
        let sweep = self.pass(micro_batches, pass, position, None)?;
        let each = sweep.iter().zip(micro_batches);
        each.map(|(numbers, micro)| {
            let losses = self.token_losses(numbers)?;
            Ok(losses.sum(micro, 0..micro.tokens.len()))
        })
        .collect()
    }

    /// As [`Executor::sweep`]; passes the logits of each window of the head to `look`. Without one,
    /// the head may leave tokens without a label out.
    pub(super) fn pass(
        &self,
        micro_batches: &[&MicroBatch],
        pass: Pass<'_>,
        position: StepPosition,
        look: Option<OnLogits<'_>>,
    ) -> Result<Vec<Numbers>> {
        assert!(micro_batches.len() <= self.micro_batches_per_fetch());
        let slots = (0..).zip(micro_batches.iter().copied());
        let sweep = slots.map(|(slot, micro)| {
            let labelled = match look {
                Some(_) => None,
                None => self.labelled(&micro.labels),
            };
            self.begin((slot, micro), labelled, pass, position)
        });
        let sweep = sweep.collect::<Result<Vec<_>>>()?;
        let mut nothing = |_: &LogitsWindow<'_>| Ok(());
        let look = look.unwrap_or(&mut nothing);
        let mut compute = |task: &Task| self.compute(task, pass, position, &sweep, look);
        self.walk_sweep((pass, position), &sweep, &mut compute)?;
        Ok(sweep)
    }

    /// Does the tasks of a pass; those on the compute lane by `compute`.
    pub(super) fn walk_sweep(
        &self,
        (pass, position): (Pass<'_>, StepPosition),
        sweep: &[Numbers],
        compute: &mut dyn FnMut(&Task) -> Result<()>,
    ) -> Result<()> {
        let tasks = (&self.step_plan.micro_batch[..], &self.waits.micro_batch);
        let wanted = self.wanted(pass, position, sweep);
        let transfer = |task: &Task| self.transfer(task, sweep);
        walk(&self.lanes(), tasks, &wanted, compute, &transfer)?;
        if self.peers.has_device_groups() {
            // Other ranks wait for this one's calls. The host, before it waits for other ranks, has
            // waited for the compute stream. That includes the calls of a rank without tokens,
            // whose compute stream reads nothing that they bring.
            self.lanes().catch_up()?;
        }
        Ok(())
    }

    /// Which tasks take part in a pass: those that give the device work.
    fn wanted(
        &self,
        pass: Pass<'_>,
        position: StepPosition,
        sweep: &[Numbers],
    ) -> impl Fn(usize, &Task) -> bool {
        let trains = matches!(pass, Pass::Train { .. });
        move |index, task| {
            let now = match task.action.when {
                When::Every => true,
                When::First => position.first,
                When::Last => position.last,
            };
            let passes = trains || self.evaluates[index];
            now && passes && self.works_in_pass(task, pass, position, sweep)
        }
    }

    /// Does a task of a sweep on the compute lane.
    fn compute(
        &self,
        task: &Task,
        pass: Pass<'_>,
        position: StepPosition,
        sweep: &[Numbers],
        look: OnLogits<'_>,
    ) -> Result<()> {
        let trains = matches!(pass, Pass::Train { .. });
        for &(unit, when) in task.begins.iter().filter(|_| trains) {
            if when == When::Every && !position.first {
                // The plan holds one sweep's gradients; those of the others would be lost.
                let message = "a step of several sweeps, expected one for each rank";
                return Err(schedule_failure(PluginError::invalid(message)));
            }
            if position.first {
                self.zero_unit(task, unit)?;
            }
        }
        let unit = task.action.unit;
        if matches!(task.action.act, Act::Forward | Act::Backward | Act::Norm) {
            self.since_wait.given(task.action.act, unit);
        }
        match task.action.act {
            // A rank without tokens takes part in transfers only.
            Act::Forward | Act::Backward => {
                let mut sweep = sweep.iter().filter(|numbers| numbers.tokens > 0);
                sweep.try_for_each(|numbers| self.unit_pass(task, pass, numbers, look))
            }
            Act::Norm => {
                let region = task.region(unit, RegionKind::Reduced);
                self.sum_squares(unit, region.or(task.region(unit, RegionKind::Gradients)))
            }
            Act::Optimize => match pass {
                Pass::Train {
                    update: Some(update),
                    ..
                } => self.optimize(task, update),
                _ => Ok(()),
            },
            _ => self.transfer(task, sweep),
        }
    }

    /// Runs a unit forward or backward for one micro-batch.
    fn unit_pass(
        &self,
        task: &Task,
        pass: Pass<'_>,
        numbers: &Numbers,
        look: OnLogits<'_>,
    ) -> Result<()> {
        match task.action.act {
            Act::Forward if self.program.units[task.action.unit].kind == UnitKind::Head => {
                self.head(task, pass, numbers, look)
            }
            Act::Forward => self.forward(task, numbers),
            _ => self.backward(task, numbers),
        }
    }

    /// The logits of a micro-batch, `[T, V]` row major, as f64 of the compute dtype's values.
    ///
    /// # Errors
    /// `Error::Plugin`: a call to the backend failed.
    pub fn logits(&self, micro: &MicroBatch, position: StepPosition) -> Result<Vec<f64>> {
        let row = self.logits_row_bytes()?;
        let mut logits = Vec::new();
        let mut look = |window: &LogitsWindow<'_>| {
            let tokens = window.tokens();
            let mut bytes = vec![0; ((tokens.end - tokens.start) * row) as usize];
            window.read(tokens, &mut bytes)?;
            logits.extend(numbers(&bytes, self.logits_dtype()));
            Ok(())
        };
        self.pass(&[micro], Pass::Evaluate, position, Some(&mut look))?;
        Ok(logits)
    }

    /// Uploads the micro-batch in a slot of its sweep and fixes the numbers of its launches. The
    /// head works on its tokens in `labelled`, or on all.
    pub(super) fn begin(
        &self,
        (slot, micro): (u64, &MicroBatch),
        labelled: Option<Labelled>,
        pass: Pass<'_>,
        position: StepPosition,
    ) -> Result<Numbers> {
        let device = self.device.as_ref();
        let uploaded = (self.storage).upload_batch(device, slot, micro, labelled.as_ref());
        self.since_wait.during("upload", uploaded)?;
        let loss_factor = match pass {
            Pass::Evaluate => 0.0,
            Pass::Train { loss_factor, .. } => loss_factor,
        };
        Ok(Numbers {
            slot,
            tokens: micro.tokens.len() as u64,
            labelled,
            sequences: (micro.cu_seqlens.len() - 1) as u64,
            pairs: pairs_of(micro),
            seed: position.seed,
            step: position.step,
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

    /// The head in chunks of its tokens: forward and, when training, backward of each before the
    /// next.
    fn head(
        &self,
        task: &Task,
        pass: Pass<'_>,
        numbers: &Numbers,
        look: OnLogits<'_>,
    ) -> Result<()> {
        let unit = task.action.unit;
        let launches = &self.prepared.units[unit];
        self.gather_hidden(numbers)?;
        let of_head = numbers.of_head();
        for window in of_head.windows(self.program.units[unit].max_tokens) {
            for launch in &launches.forward {
                self.launch(launch, &of_head, window, &task.regions)?;
            }
            look(&LogitsWindow::new(self, window))?;
            if matches!(pass, Pass::Train { .. }) {
                for launch in &launches.backward {
                    self.launch(launch, &of_head, window, &task.regions)?;
                }
            }
        }
        if matches!(pass, Pass::Train { .. }) {
            self.spread_gradient(numbers)?;
        }
        Ok(())
    }
}
