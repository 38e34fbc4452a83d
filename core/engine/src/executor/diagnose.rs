//! A loss that is not finite -> the first tensor of the step that is not finite.

use espalier_compile::program::{OperandPlace, ValueMemory};
use espalier_data::MicroBatch;
use espalier_interface::schedule::Act;
use espalier_interface::{BufferRange, DType, KernelRequest, Operand, Stream, WeightLayout};
use espalier_numeric::first_not_finite_element;
use espalier_plan::step_plan::Task;
use espalier_plan::storage_layout::StateKind;

use super::window::{Numbers, Window};
use super::{Executor, Pass, StepPosition};
use crate::Error;
use crate::error::{BackendCall, Result};

/// A tensor with a number that is not finite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotFiniteTensor {
    /// What it is: a param, a gradient or the output of an op.
    pub tensor: String,
    /// Index of its first such element.
    pub index: u64,
}

impl std::fmt::Display for NotFiniteTensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, element {}", self.tensor, self.index)
    }
}

impl Executor {
    /// The first trainable param or gradient that is not finite.
    ///
    /// # Errors
    /// `Error::Plugin`: a call to the backend failed.
    pub fn trainable_not_finite(&self) -> Result<Option<NotFiniteTensor>> {
        for (index, param) in self.params.iter().enumerate().filter(|(_, p)| p.trainable) {
            let WeightLayout::Dense(dtype) = param.layout else {
                continue;
            };
            let [values, gradient] =
                [StateKind::Values, StateKind::Gradients].map(|kept| self.own_piece(index, kept).1);
            for (what, range, dtype) in [
                ("param", values, dtype),
                ("gradient of", gradient, self.dtypes.gradients),
            ] {
                if let Some(at) = self.not_finite_by_host(range, dtype)? {
                    let tensor = format!("{what} `{}`", param.name);
                    return Ok(Some(NotFiniteTensor { tensor, index: at }));
                }
            }
        }
        Ok(None)
    }

    /// The first of this rank's elements of trainable params and their state that is not finite.
    /// They are checked as a checkpoint would save them.
    ///
    /// # Errors
    /// `Error::Plugin`: a call to the backend failed.
    pub fn state_not_finite(&self) -> Result<Option<NotFiniteTensor>> {
        for param in self.trainable() {
            let name = &self.params[param].name;
            for part in self.state_parts(param) {
                let dtype = self.state_dtype(param, part);
                if !dtype.is_float() {
                    continue;
                }
                let first = self.own_elements(param, part).start;
                let found = self.not_finite_by_host(self.state_range(param, part), dtype)?;
                if let Some(index) = found.map(|at| first + at) {
                    let what = self.state_name(part).map_or_else(
                        || "param".to_owned(),
                        |name| format!("{} of", name.replace('_', " ")),
                    );
                    let tensor = format!("{what} `{name}`");
                    return Ok(Some(NotFiniteTensor { tensor, index }));
                }
            }
        }
        Ok(None)
    }

    /// Runs a micro-batch forward again and checks every op's outputs.
    ///
    /// # Errors
    /// `Error::Plugin`: a call to the backend failed.
    pub fn forward_not_finite(
        &self,
        micro: &MicroBatch,
        position: StepPosition,
    ) -> Result<Option<NotFiniteTensor>> {
        let numbers = self.begin((0, micro), None, Pass::Evaluate, position)?;
        let sweep = std::slice::from_ref(&numbers);
        let mut found = None;
        let mut compute = |task: &Task| match task.action.act {
            // Transfers continue: the other ranks wait for them.
            Act::Forward if found.is_some() => Ok(()),
            Act::Forward => {
                found = self.unit_not_finite(task, &numbers)?;
                Ok(())
            }
            _ => self.transfer(task, sweep),
        };
        self.walk_sweep((Pass::Evaluate, position), sweep, &mut compute)?;
        // The host waits for the other ranks next, and they may wait for this one's calls.
        self.complete(Stream(0))?;
        Ok(found)
    }

    /// Runs a unit forward and checks every op's outputs.
    fn unit_not_finite(&self, task: &Task, numbers: &Numbers) -> Result<Option<NotFiniteTensor>> {
        let unit = task.action.unit;
        let program = &self.program.units[unit];
        for window in numbers.windows(program.max_tokens.min(numbers.tokens)) {
            for (at, step) in program.forward.iter().enumerate() {
                let launch = &self.prepared.units[unit].forward[at];
                self.launch(launch, numbers, window, &task.regions)?;
                let outputs = step.request.outputs.len();
                let places = &step.operands[step.operands.len() - outputs..];
                for (operand, place) in step.request.outputs.iter().zip(places) {
                    let Some(range) = self.value_range(place, window, task) else {
                        continue;
                    };
                    if !operand.dtype.is_float() {
                        continue;
                    }
                    if let Some(index) = self.not_finite(range, operand.dtype)? {
                        let site = step.site.as_deref().unwrap_or(&program.name);
                        let tensor = format!("output of `{}` at `{site}`", step.request.op);
                        return Ok(Some(NotFiniteTensor { tensor, index }));
                    }
                }
            }
        }
        Ok(None)
    }

    fn value_range(
        &self,
        place: &OperandPlace,
        window: Window,
        task: &Task,
    ) -> Option<BufferRange> {
        let OperandPlace::Value(place) = place else {
            return None;
        };
        if matches!(place.region, ValueMemory::Batch(_)) || place.by_chunk {
            return None;
        }
        let bytes = place.extent.bytes(window.tokens, 0);
        Some(self.value((place.region, 0), place.offset, bytes, &task.regions))
    }

    /// Index of the first element of a range that is not finite, found by the host: kernels may not
    /// work on what is offloaded.
    fn not_finite_by_host(&self, range: BufferRange, dtype: DType) -> Result<Option<u64>> {
        let (mut done, mut found) = (0, None);
        self.download_parts(range, &mut |bytes| {
            let at = first_not_finite_element(bytes, dtype);
            found = found.or(at.map(|at| done + at as u64));
            done += bytes.len() as u64 / dtype.bytes();
            Ok::<_, Error>(())
        })?;
        Ok(found)
    }

    /// Index of the first element of a range on the device that is not finite.
    fn not_finite(&self, range: BufferRange, dtype: DType) -> Result<Option<u64>> {
        let count = range.bytes / dtype.bytes();
        if count == 0 {
            return Ok(None);
        }
        let request = KernelRequest::new("first_not_finite")
            .inputs(vec![Operand::flat(count, dtype)])
            .outputs(vec![Operand::flat(1, DType::I64)]);
        let prepared = self.device.prepare(&request, &[]);
        let prepared = prepared.during("prepare")?;
        let result = self.storage.result();
        let launched = self.launch_flat(&prepared.kernel, &[range, result], &[]);
        launched.and(self.device.release(prepared.kernel).during("release"))?;
        let mut bytes = [0u8; 8];
        self.download_result(result, &mut bytes)?;
        Ok(u64::try_from(i64::from_le_bytes(bytes)).ok())
    }
}
