//! Sizes of a run -> memory by category: the table that `host plan` prints and that refuses what does not fit.

use espalier_compile::program::Program;
use serde::{Deserialize, Serialize};

use crate::storage_layout::Sizes;

/// Bytes of a rank by category. Their sum is the peak of a step; loading has a peak of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryPlan {
    /// Frozen weights, packed or dense.
    pub weights: u64,
    /// Trainable params.
    pub trainable: u64,
    /// Their gradients.
    pub gradients: u64,
    /// The optimizer's moments.
    pub optimizer: u64,
    /// What each layer alone saves for the backward pass, as far as it stays on the device.
    pub saved_activations: u64,
    /// Values at work, on the way between units, and a micro-batch's tensors.
    pub arena: u64,
    /// What the head's chunk of logits needs beyond that.
    pub logits: u64,
    /// Keys and values of earlier tokens; of a run that also trains or evaluates, what generating needs beyond the memory
    /// of a step.
    pub kv_cache: u64,
    /// Workspace of kernels.
    pub workspace: u64,
    /// What the schedule brings: weights put together, gradients before they are reduced; none on one rank without offload.
    pub collective: u64,
    /// The program itself: its data, the rows, the tokenizer.
    pub program: u64,
    /// While loading, beside weights and trainable params: one weight in f32 and the encoder's workspace.
    pub loading: u64,
}

impl MemoryPlan {
    /// The plan of a program's run, and of what generates beside it in the same arena.
    ///
    /// # Units
    /// `program_bytes` and `loading_bytes` in bytes; see the fields of those names.
    pub fn new(
        (program, generator): (&Program, Option<&Program>),
        sizes: &Sizes,
        workspace: u64,
        [program_bytes, loading_bytes]: [u64; 2],
    ) -> Self {
        let beyond = generator.map_or(0, |generator| {
            let step = program.arena.bytes() + sizes.saved;
            generator.arena.bytes().saturating_sub(step)
        });
        let passes = MemoryPlan {
            arena: program.arena.saved + program.arena.passing + program.arena.work + sizes.batch,
            logits: program.arena.logits,
            kv_cache: program.arena.cache + beyond,
            workspace,
            program: program_bytes,
            loading: loading_bytes,
            ..MemoryPlan::default()
        };
        passes.placed_as(sizes)
    }

    /// The plan of the same passes where the rank's bytes lie elsewhere.
    pub fn placed_as(&self, sizes: &Sizes) -> Self {
        MemoryPlan {
            weights: sizes.frozen,
            trainable: sizes.trainable,
            gradients: sizes.gradients,
            optimizer: sizes.optimizer,
            saved_activations: sizes.saved,
            collective: sizes.regions,
            ..*self
        }
    }

    /// Peak of a training step.
    pub fn step_peak(&self) -> u64 {
        self.categories().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Peak while loading: nothing of a step is touched yet.
    pub fn loading_peak(&self) -> u64 {
        self.program + self.weights + self.trainable + self.loading
    }

    /// Peak of the run.
    pub fn peak(&self) -> u64 {
        self.step_peak().max(self.loading_peak())
    }

    /// What a run needs beside what the program holds already.
    pub fn needed(&self) -> u64 {
        self.peak() - self.program
    }

    /// What a device with memory of its own must hold; loading takes the host's.
    pub fn on_device(&self) -> u64 {
        self.step_peak() - self.program
    }

    /// The categories of a step with their names, in the order in which they are printed.
    pub fn categories(&self) -> [(&'static str, u64); 11] {
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
            ("program", self.program),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
