//! Sizes of a run -> memory by category: the table that `host plan` prints and that refuses what
//! does not fit.

use espalier_compile::program::Program;
use serde::{Deserialize, Serialize};

use super::CalibrationPlan;
use crate::storage_layout::Sizes;

/// Bytes of a rank by category. The sum is the peak of a step; loading has a separate peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryPlan {
    /// Frozen weights, packed or dense; those of an adapter, too.
    pub weights: u64,
    /// Trainable params.
    pub trainable: u64,
    /// Gradients of the trainable params, as far as they do not take the bytes of saved activations
    /// that the backward pass has read.
    pub gradients: u64,
    /// What the optimizer keeps of the trainable params.
    pub optimizer: u64,
    /// Activations that only one layer saves for its backward pass, as far as they stay on the
    /// device.
    pub saved_activations: u64,
    /// Working memory, hidden states between units, and the tensors of a micro-batch.
    pub arena: u64,
    /// What a chunk of the head's logits needs beyond `arena`.
    pub logits: u64,
    /// Keys and values of earlier tokens. In a run that also trains or evaluates, what generation
    /// needs beyond the memory of a step.
    pub kv_cache: u64,
    /// Workspace of kernels.
    pub workspace: u64,
    /// Regions of the schedule: gathered weights, and gradients before they are reduced. 0 on one
    /// rank without offload.
    pub collective: u64,
    /// What the collective of devices keeps for its groups.
    pub groups: u64,
    /// The program itself: its data, the training rows, the tokenizer.
    pub program: u64,
    /// While loading: one weight in f32 and the encoder's workspace, besides weights and trainable
    /// params.
    pub loading: u64,
    /// Before loading, where quantizers are calibrated: rows, a unit in f32, statistics. On the
    /// host.
    pub calibration: u64,
    /// The same on a device with memory of its own, of which the host holds the rest.
    pub calibration_on_device: u64,
}

impl MemoryPlan {
    /// The memory of a program's run, and of the generator in the same arena, if any.
    ///
    /// # Units
    /// All in bytes; see the fields of those names.
    pub fn new(
        (program, generator): (&Program, Option<&Program>),
        sizes: &Sizes,
        [workspace, groups]: [u64; 2],
        [program_bytes, loading_bytes]: [u64; 2],
    ) -> Self {
        let beyond = generator.map_or(0, |generator| {
            let behind = sizes.saved + sizes.gradients_behind_arena + sizes.passing;
            let step = program.arena.bytes() + behind;
            generator.arena.bytes().saturating_sub(step)
        });
        let of_one = program.arena.micro_batch_bytes() + program.arena.work;
        MemoryPlan {
            weights: sizes.frozen,
            trainable: sizes.trainable,
            gradients: sizes.gradients,
            optimizer: sizes.optimizer,
            saved_activations: sizes.saved,
            arena: of_one + sizes.passing + sizes.batch,
            logits: program.arena.logits,
            kv_cache: program.arena.cache + beyond,
            workspace,
            collective: sizes.regions,
            groups,
            program: program_bytes,
            loading: loading_bytes,
            calibration: 0,
            calibration_on_device: 0,
        }
    }

    /// The same with the memory of a calibration, if there is one.
    #[must_use]
    pub fn calibrating(self, calibration: Option<&CalibrationPlan>) -> Self {
        MemoryPlan {
            calibration: calibration.map_or(0, |one| one.bytes),
            calibration_on_device: calibration.map_or(0, |one| one.device_bytes),
            ..self
        }
    }

    /// Peak of a training step.
    pub fn step_peak(&self) -> u64 {
        self.categories().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Peak while loading, when no memory of a step is in use yet, and of the calibration before.
    pub fn loading_peak(&self) -> u64 {
        let loading = self.weights + self.trainable + self.loading;
        self.program + loading.max(self.calibration)
    }

    /// Peak of the run.
    pub fn peak(&self) -> u64 {
        self.step_peak().max(self.loading_peak())
    }

    /// Bytes that a run needs beyond what the program holds already.
    pub fn needed(&self) -> u64 {
        self.peak() - self.program
    }

    /// Bytes on a device with its own memory: of a step, or of the calibration before. Loading uses
    /// host memory.
    pub fn on_device(&self) -> u64 {
        let step = self.step_peak() - self.program;
        match self.calibration_on_device {
            0 => step,
            calibration => step.max(calibration + self.workspace),
        }
    }

    /// The categories of a step with their names, in the order in which they are printed.
    pub fn categories(&self) -> [(&'static str, u64); 12] {
        [
            ("weights", self.weights),
            ("trainable params", self.trainable),
            ("gradients", self.gradients),
            ("optimizer state", self.optimizer),
            ("saved activations", self.saved_activations),
            ("arena", self.arena),
            ("logits chunk", self.logits),
            ("kv cache", self.kv_cache),
            ("kernel workspace", self.workspace),
            ("in flight", self.collective),
            ("device groups", self.groups),
            ("program", self.program),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calibration_can_be_the_peak_of_a_device() {
        let plan = |calibration_on_device| MemoryPlan {
            weights: 10,
            workspace: 5,
            program: 7,
            calibration_on_device,
            ..MemoryPlan::default()
        };
        let on_device = [0, 9, 11].map(|bytes| plan(bytes).on_device());
        assert_eq!(on_device, [15, 15, 16]);
        assert_eq!(plan(11).step_peak(), 22, "it is before the step");
    }

    #[test]
    fn loading_can_be_the_peak() {
        let plan = MemoryPlan {
            weights: 10,
            gradients: 1,
            loading: 50,
            ..MemoryPlan::default()
        };
        assert_eq!(
            (plan.step_peak(), plan.loading_peak(), plan.peak()),
            (11, 60, 60)
        );
    }
}
