//! How the runs of every unit are cut among ranks, and which parts stay whole.

use std::ops::Range;

use espalier_compile::flat_params::FlatParams;
use espalier_compile::params::{Dtypes, Param};
use espalier_compile::program::Program;
use espalier_interface::DType;
use espalier_interface::optimizer::OptimizerSpec;
use espalier_interface::schedule::{
    Act, Action, Part, Place, Placement, Schedule, ShardingRequest,
};

use crate::block_layout::{BlockLayout, SharedGradients, first_to_add};
use crate::step_plan::RegionSizes;

/// The params of a run and what keeps and updates them.
#[derive(Clone, Copy, Debug)]
pub struct Trained<'a> {
    /// All params.
    pub params: &'a [Param],
    /// The optimizer of the trainable ones.
    pub optimizer: &'a OptimizerSpec,
    /// Their dtypes.
    pub dtypes: Dtypes,
}

/// The placement of all units' runs under a schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardLayout {
    /// The placement of each unit's bytes between steps.
    pub placements: Vec<Placement>,
    /// The runs of each unit.
    pub flat_params: Vec<FlatParams>,
    /// Number of parts into which a sharded run is cut.
    pub parts: u64,
    /// The dtype in which gradients are sent; none for their own.
    pub wire: Option<DType>,
    /// For each unit, its block of saved activations.
    pub saved: Vec<Saved>,
    /// For each unit, its gradients where they share the memory of such blocks: those of runs that
    /// are not cut, where a step has one micro-batch.
    pub shared_gradients: Vec<Option<SharedGradients>>,
    /// Bytes of the arena, behind which the blocks are.
    pub arena_bytes: u64,
    /// Bytes of the first micro-batch's blocks that stay, and of the gradients among them.
    pub block_bytes: u64,
    /// The optimizer, whose state is cut as the params are.
    pub optimizer: OptimizerSpec,
    /// Micro-batches that each unit runs in turn, for which its weights are held.
    pub sweep: u64,
    /// Bytes of the arena that each micro-batch of a sweep has for itself, its saved blocks aside.
    pub passing_bytes: u64,
    /// Whether units are updated in the backward pass. Gradients are then in regions alone, and
    /// none is kept.
    pub updates_in_backward: bool,
}

/// Where a unit's block of saved activations is kept between its two passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Bytes of the block, for one micro-batch.
    pub bytes: u64,
    /// Offset from the end of the arena, or from that of a later micro-batch's own part of it;
    /// `None` where the block is moved to the host.
    pub stays_at: Option<u64>,
}

impl ShardLayout {
    /// The layout of what is `trained`, of its state and of what `program` saves, under a schedule
    /// that is valid for `request`.
    pub fn new(
        schedule: &Schedule,
        trained: Trained<'_>,
        program: &Program,
        request: &ShardingRequest,
    ) -> Self {
        let Trained {
            params,
            optimizer,
            dtypes,
        } = trained;
        let leaves = |unit: usize| {
            let mut actions = schedule.micro_batch.iter();
            actions.any(|action| {
                action.act == Act::Offload
                    && action.unit == unit
                    && action.parts.contains(&Part::Saved)
            })
        };
        let updates = |actions: &[Action]| actions.iter().any(|one| one.act == Act::Optimize);
        let updates_in_backward = updates(&schedule.micro_batch);
        let placements = &schedule.placements;
        let flat_params = FlatParams::of_all(params, placements.len(), optimizer);
        // Those of several micro-batches are summed: they outlast the next forward pass.
        let shares = request.micro_batches == 1 && !updates_in_backward;
        let shared = placements.iter().zip(&flat_params).enumerate();
        let shared = shared.map(|(unit, (place, flat))| {
            let bytes = flat.elements * dtypes.gradients.bytes();
            let shares = shares && place.optimizer == Place::Replicated && bytes > 0;
            let begins_in = shares.then(|| first_to_add(program, params, unit))??;
            Some((bytes, begins_in))
        });
        let shared: Vec<_> = shared.collect();
        let stay = program.blocks.iter().enumerate();
        let stay = stay.map(|(unit, block)| (!leaves(unit)).then_some(block.bytes));
        let blocks = BlockLayout::new(&stay.collect::<Vec<_>>(), &shared);
        let saved = program.blocks.iter().zip(&blocks.blocks);
        let saved = saved.map(|(block, &stays_at)| Saved {
            bytes: block.bytes,
            stays_at,
        });
        ShardLayout {
            placements: placements.clone(),
            flat_params,
            parts: u64::from(schedule.ranks_sharing(request)),
            wire: schedule.reduce_dtype,
            saved: saved.collect(),
            shared_gradients: blocks.gradients,
            arena_bytes: program.arena.bytes(),
            block_bytes: blocks.bytes,
            optimizer: optimizer.clone(),
            sweep: u64::from(schedule.sweep(request)),
            passing_bytes: program.arena.micro_batch_bytes(),
            updates_in_backward,
        }
    }

    /// First byte behind the arena of what micro-batch `number` of a sweep, from 1, has for itself:
    /// its `passing_bytes`, then its blocks. Micro-batch 0 has the former in the arena, and its
    /// blocks right behind that.
    pub fn own_begin(&self, number: u64) -> u64 {
        let each = self.passing_bytes + self.block_bytes;
        self.block_bytes + number.saturating_sub(1) * each
    }

    /// Bytes behind the arena that the micro-batches of a sweep need.
    pub fn behind_arena_bytes(&self) -> u64 {
        self.own_begin(self.sweep.max(1))
    }

    /// Bytes of a micro-batch's saved activations that stay on the device.
    pub fn staying_bytes(&self) -> u64 {
        let staying = self.saved.iter().filter(|saved| saved.stays_at.is_some());
        staying.map(|saved| saved.bytes).sum()
    }

    /// Bytes of gradients behind the arena beyond those of the blocks whose memory they share.
    pub fn gradients_beyond_blocks(&self) -> u64 {
        self.block_bytes - self.staying_bytes()
    }

    /// Gradients of a unit in memory that saved activations share; none where they are elsewhere.
    pub fn shared_gradients(&self, unit: usize) -> Option<SharedGradients> {
        self.shared_gradients.get(unit).copied().flatten()
    }

    /// Whether a unit's gradients are whole in memory of their own from step to step.
    pub fn keeps_gradients(&self, unit: usize) -> bool {
        !self.is_cut(unit) && !self.updates_in_backward && self.shared_gradients(unit).is_none()
    }

    /// Whether the gradients and optimizer state of a unit are cut, or stored apart from those of
    /// the units that are not.
    pub fn is_cut(&self, unit: usize) -> bool {
        self.placements[unit].optimizer != Place::Replicated
    }

    /// Whether all params that a unit's kernels read stay whole on the device between steps.
    pub fn is_resident(&self, unit: usize) -> bool {
        let place = self.placements[unit];
        place.frozen == Place::Replicated && place.trainable == Place::Replicated
    }

    /// Elements of a part of a unit's trainable run.
    pub fn part_elements(&self, unit: usize) -> u64 {
        self.flat_params[unit].part_elements(self.parts)
    }

    /// Bytes of a part of a unit's frozen run.
    pub fn part_bytes(&self, unit: usize) -> u64 {
        self.flat_params[unit].part_bytes(self.parts)
    }

    /// Elements of the unit whose values, gradients and state this rank keeps: all, or its part.
    pub fn own_elements(&self, unit: usize) -> u64 {
        if self.is_cut(unit) {
            self.part_elements(unit)
        } else {
            self.flat_params[unit].elements
        }
    }

    /// The elements of a unit's trainable run that part `part` of those that share it keeps: all,
    /// where the run is not cut.
    pub fn own_run(&self, unit: usize, part: u64) -> Range<u64> {
        let own = self.own_elements(unit);
        let begin = if self.is_cut(unit) { part * own } else { 0 };
        begin..begin + own
    }

    /// The elements of a tensor of the optimizer's state for a range of a unit's trainable run,
    /// counted from those for the element `from` of the run. Both are of that run.
    pub fn state_range(
        &self,
        unit: usize,
        tensor: usize,
        from: u64,
        of: &Range<u64>,
    ) -> Range<u64> {
        let (size, tensor) = self.optimizer.tensors()[tensor];
        let flat = &self.flat_params[unit];
        let begin = tensor.elements(flat.of_size(size, &(from..from)).start);
        let range = tensor.range(&flat.of_size(size, of));
        range.start - begin..range.end - begin
    }

    /// Bytes of a tensor of the optimizer's state that a rank keeps of a unit. Of parts with unlike
    /// params it is the most.
    pub fn own_state_bytes(&self, unit: usize, tensor: usize) -> u64 {
        let parts = if self.is_cut(unit) { self.parts } else { 1 };
        let elements = (0..parts).map(|part| {
            let own = self.own_run(unit, part);
            self.state_range(unit, tensor, own.start, &own).end
        });
        let (_, of) = self.optimizer.tensors()[tensor];
        elements.max().unwrap_or(0) * of.dtype.bytes()
    }

    /// Bytes of all of the optimizer's state that a rank keeps of a unit.
    pub fn own_state(&self, unit: usize) -> u64 {
        let tensors = 0..self.optimizer.tensors().len();
        tensors
            .map(|tensor| self.own_state_bytes(unit, tensor))
            .sum()
    }

    /// Bytes of a tensor of the optimizer's state that stays whole, of all units.
    pub fn whole_state_bytes(&self, tensor: usize) -> u64 {
        let units = (0..self.flat_params.len()).filter(|&unit| !self.is_cut(unit));
        units.map(|unit| self.own_state_bytes(unit, tensor)).sum()
    }

    /// Bytes of all of the optimizer's state, on all ranks that share it.
    pub fn state_bytes(&self) -> u64 {
        let flat = self.flat_params.iter();
        flat.map(|flat| flat.state_bytes(&self.optimizer)).sum()
    }

    /// Elements of the trainable runs whose gradients are whole in memory of their own, and of
    /// those whose values stay whole.
    pub fn whole_elements(&self) -> [u64; 2] {
        let sum = |whole: &dyn Fn(usize) -> bool| {
            let units = (0..self.flat_params.len()).filter(|&unit| whole(unit));
            units.map(|unit| self.flat_params[unit].elements).sum()
        };
        [
            sum(&|unit| self.keeps_gradients(unit)),
            sum(&|unit| self.placements[unit].trainable == Place::Replicated),
        ]
    }

    /// The casts between the dtype of gradients and that in which they are sent, with their
    /// elements.
    pub fn casts(&self, dtypes: Dtypes) -> Vec<([DType; 2], u64)> {
        let Some(wire) = self.wire.filter(|&wire| wire != dtypes.gradients) else {
            return Vec::new();
        };
        let units = (0..self.flat_params.len()).filter(|&unit| self.flat_params[unit].elements > 0);
        let of_unit = |unit| {
            let own = self.own_elements(unit);
            let sent = if self.is_cut(unit) {
                own * self.parts
            } else {
                own
            };
            [
                ([dtypes.gradients, wire], sent),
                ([wire, dtypes.gradients], own),
            ]
        };
        units.flat_map(of_unit).collect()
    }

    /// The sizes of each unit's regions.
    pub fn region_sizes(&self, dtypes: Dtypes) -> Vec<RegionSizes> {
        let units = 0..self.flat_params.len();
        units
            .map(|unit| self.unit_region_sizes(unit, dtypes))
            .collect()
    }

    fn unit_region_sizes(&self, unit: usize, dtypes: Dtypes) -> RegionSizes {
        let (flat, placement) = (&self.flat_params[unit], self.placements[unit]);
        let part = flat.part_elements(self.parts);
        let padded = part * self.parts;
        let [params, gradients] = [dtypes.params, dtypes.gradients].map(DType::bytes);
        let travels = match placement.optimizer {
            Place::Replicated => flat.elements,
            _ => padded + part,
        };
        RegionSizes {
            frozen: match placement.frozen {
                Place::Host => flat.frozen_bytes,
                _ => flat.part_bytes(self.parts) * self.parts,
            },
            trainable: padded * params,
            gradients: match placement.optimizer {
                Place::Replicated => flat.elements * gradients,
                _ => padded * gradients,
            },
            wire: match self.wire.filter(|&wire| wire != dtypes.gradients) {
                Some(wire) => travels * wire.bytes(),
                None => 0,
            },
            reduced: part * gradients,
            values: part * params,
            state: self.own_state(unit),
            saved: match self.saved[unit].stays_at {
                Some(_) => 0,
                None => self.saved[unit].bytes * self.sweep,
            },
        }
    }
}
