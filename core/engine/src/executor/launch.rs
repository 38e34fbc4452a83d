//! The launches of a step's kernels: operands and scalars filled in.

use std::cell::RefCell;

use espalier_compile::program::{Extent, OperandPlace, Scalar};
use espalier_interface::op::InEvaluation;
use espalier_interface::{BufferRange, Kernel, Launch, PluginError, Stream};
use espalier_plan::step_plan;

use super::Executor;
use super::prepared_kernels::PreparedStep;
use super::storage::part;
use super::window::{Numbers, Window};
use crate::error::{Error, Result};

impl Executor {
    /// Launches a unit's step for a window of the micro-batch. `regions` hold what is not whole on
    /// the device between steps.
    pub(super) fn launch(
        &self,
        step: &PreparedStep,
        numbers: &Numbers,
        window: Window,
        regions: &[step_plan::Region],
    ) -> Result<()> {
        self.peers.beat();
        thread_local! {
            /// Ranges and scalars of the current launch; reused, so that a step allocates nothing.
            static OPERANDS: RefCell<(Vec<BufferRange>, Vec<f64>)> =
                const { RefCell::new((Vec::new(), Vec::new())) };
        }
        OPERANDS.with_borrow_mut(|(ranges, scalars)| {
            ranges.clear();
            for operand in &step.operands {
                match *operand {
                    OperandPlace::Param(param) => self.param(param, regions, ranges)?,
                    OperandPlace::Gradient(param) => {
                        ranges.push(self.gradient(param, regions)?);
                    }
                    OperandPlace::Value(place) => {
                        let bytes = place.extent.bytes(window.tokens, numbers.sequences);
                        let skipped = match place.extent {
                            Extent::PerToken(each) if place.by_chunk => each * window.first,
                            _ => 0,
                        };
                        let offset = place.offset + skipped;
                        let value = (place.region, numbers.slot);
                        ranges.push(self.value(value, offset, bytes, regions));
                    }
                }
            }
            if numbers.evaluate && step.in_evaluation == InEvaluation::Copies {
                let (from, to) = (ranges[0], *ranges.last().expect("such an op has an output"));
                let copied = self.device.copy(from, to, Stream(0));
                return self.since_wait.during("copy", copied);
            }
            scalars.clear();
            scalars.extend(step.scalars.iter().map(|scalar| match *scalar {
                Scalar::SeedLow => f64::from(numbers.seed as u32),
                Scalar::SeedHigh => f64::from((numbers.seed >> 32) as u32),
                Scalar::Step => numbers.step as f64,
                Scalar::Site(number) => number as f64,
                Scalar::LossFactor => numbers.loss_factor,
            }));
            let launched = self.device.launch(&Launch {
                kernel: step.kernel,
                stream: Stream(0),
                ranges,
                workspace: self.workspace(Stream(0)),
                tokens: window.tokens,
                sequences: numbers.sequences,
                scalars,
            });
            self.work_counter.launched(&step.cost, numbers, window);
            launched.map_err(|error| self.launch_failed(error))
        })
    }

    /// Launches an op on flat runs.
    pub(super) fn launch_flat(
        &self,
        kernel: &Kernel,
        ranges: &[BufferRange],
        scalars: &[f64],
    ) -> Result<()> {
        self.launch_on(Stream(0), kernel, ranges, scalars)
    }

    /// As [`Executor::launch_flat`], on `stream`. Beside the compute stream only casts are
    /// launched, which have workspace of their own there.
    pub(super) fn launch_on(
        &self,
        stream: Stream,
        kernel: &Kernel,
        ranges: &[BufferRange],
        scalars: &[f64],
    ) -> Result<()> {
        let launched = self.device.launch(&Launch {
            kernel: *kernel,
            stream,
            ranges,
            workspace: self.workspace(stream),
            tokens: 0,
            sequences: 0,
            scalars,
        });
        launched.map_err(|error| self.launch_failed(error))
    }

    /// The workspace of kernels on `stream`. The compute stream and the others share none.
    fn workspace(&self, stream: Stream) -> BufferRange {
        let whole = self.storage.workspace();
        let computing = whole.bytes - self.prepared.moving_workspace_bytes;
        match stream {
            Stream(0) => part(whole, &(0..computing), 1),
            _ => part(whole, &(computing..whole.bytes), 1),
        }
    }

    /// The error of a failed launch: the quantizer's where its `decode` failed, else the backend's.
    fn launch_failed(&self, error: PluginError) -> Error {
        let mut callbacks = self.prepared.callbacks.iter();
        let decode = callbacks.find_map(|callback| callback.failure());
        decode.unwrap_or_else(|| self.since_wait.failed("launch", error))
    }
}
