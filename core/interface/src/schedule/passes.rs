//! A request -> the passes of a micro-batch, the params that they read, and where gradients are
//! complete.

use super::{Act, Part, Schedule, ShardingRequest, UnitBytes};

/// A unit's forward or backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass<'a> {
    /// [`Act::Forward`] or [`Act::Backward`].
    pub act: Act,
    /// Index of the unit.
    pub unit: usize,
    /// Units whose params it reads or computes gradients for.
    pub reads: &'a [usize],
    /// Whether it computes gradients: backward passes do, and so does the head's forward pass.
    pub makes_gradients: bool,
}

impl UnitBytes {
    /// Bytes of a part.
    pub fn bytes(&self, part: Part) -> u64 {
        match part {
            Part::Frozen => self.frozen,
            Part::Trainable => self.trainable,
            Part::Gradients => self.gradients,
            Part::Optimizer => self.optimizer,
            Part::Saved => self.saved,
        }
    }
}

impl ShardingRequest {
    /// A unit's forward or backward pass.
    pub fn pass(&self, act: Act, unit: usize) -> Pass<'_> {
        let of_unit = &self.units[unit];
        let reads = match act {
            Act::Forward => &of_unit.forward_reads,
            _ => &of_unit.backward_reads,
        };
        Pass {
            act,
            unit,
            reads,
            makes_gradients: act == Act::Backward || unit + 1 == self.units.len(),
        }
    }

    /// The passes of a micro-batch in their order: all units forward, then all but the head
    /// backward.
    pub fn passes(&self) -> Vec<Pass<'_>> {
        let units = self.units.len();
        let forward = (0..units).map(|unit| self.pass(Act::Forward, unit));
        let backward = (0..units.saturating_sub(1)).rev();
        let backward = backward.map(|unit| self.pass(Act::Backward, unit));
        forward.chain(backward).collect()
    }

    /// Whether a unit has trainable params.
    pub fn trains(&self, unit: usize) -> bool {
        self.units[unit].trainable > 0
    }

    /// Units that have trainable params.
    pub fn trained(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.units.len()).filter(|&unit| self.trains(unit))
    }

    /// Units that `Schedule::update` has to update: those that have trainable params, and none
    /// where the run updates in the backward pass.
    pub fn updated_after_backward(&self) -> impl Iterator<Item = usize> + '_ {
        self.trained().filter(|_| !self.update_in_backward)
    }

    /// Index of the pass after which a unit's gradients are complete: the last that adds to them,
    /// or the last of all.
    pub fn gradients_whole_after(&self, unit: usize) -> usize {
        let passes = self.passes();
        let makes = |pass: &Pass<'_>| pass.makes_gradients && pass.reads.contains(&unit);
        let last = passes.iter().rposition(makes);
        last.unwrap_or(passes.len().saturating_sub(1))
    }
}

impl Schedule {
    /// Micro-batches of a sweep, at least one, and no more than a step has.
    pub fn sweep(&self, request: &ShardingRequest) -> u32 {
        let most = self.micro_batches_per_fetch.max(1);
        match request.micro_batches {
            0 => most,
            of_step => most.min(of_step),
        }
    }

    /// Most sweeps of a rank in a step; 0 where that is not known.
    pub fn sweeps(&self, request: &ShardingRequest) -> u32 {
        request.micro_batches.div_ceil(self.sweep(request))
    }

    /// Number of ranks that share sharded bytes, at least one.
    pub fn ranks_sharing(&self, request: &ShardingRequest) -> u32 {
        match self.shard_ranks {
            0 => request.world.max(1),
            ranks => ranks,
        }
    }
}
