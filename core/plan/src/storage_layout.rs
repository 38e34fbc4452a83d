//! Params and the sizes of passes -> the buffers of a run, each with its bytes.

use espalier_compile::arena::aligned;
use espalier_compile::params::{Dtypes, Param};
use espalier_interface::MemoryKind;
use espalier_interface::graph::batch::LengthPositions;
use espalier_interface::schedule::Place;

use crate::shard_layout::ShardLayout;

/// The content of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// All frozen params of a unit, or those of no unit.
    Frozen(usize),
    /// Values of trainable params that are not cut.
    Values,
    Gradients,
    /// A tensor of the optimizer's state, by its index.
    State(usize),
    /// This rank's parts of sharded runs.
    Own(StateKind, Side),
    /// The regions that the schedule's actions fill.
    Regions,
    /// What collective calls pass through where the host does not reach the device's memory.
    Staging,
    Arena,
    Batch,
    Workspace,
}

/// The state of a unit that is kept from step to step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StateKind {
    Frozen,
    Values,
    Gradients,
    /// A tensor of the optimizer's state, by its index.
    State(usize),
    /// Saved activations, kept from a unit's forward to its backward pass.
    Saved,
}

impl StateKind {
    /// All kinds, with `tensors` of the optimizer's state.
    pub fn all(tensors: usize) -> impl Iterator<Item = StateKind> {
        use StateKind::{Frozen, Gradients, Saved, State, Values};
        let state = (0..tensors).map(State);
        [Frozen, Values, Gradients]
            .into_iter()
            .chain(state)
            .chain([Saved])
    }
}

/// The memory in which parts are kept: the device's or the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Device,
    Host,
}

impl Part {
    /// The kind of memory in which it is allocated.
    pub fn kind(self) -> MemoryKind {
        match self {
            Part::Own(_, Side::Host) | Part::Staging => MemoryKind::PINNED,
            _ => MemoryKind::DEVICE,
        }
    }
}

/// Sizes of a run's buffers in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Frozen params on the device.
    pub frozen: u64,
    /// Trainable params on the device.
    pub trainable: u64,
    /// Gradients on the device, beyond the memory of saved activations that they share.
    pub gradients: u64,
    /// Those of them that are behind the arena.
    pub gradients_behind_arena: u64,
    /// State of the optimizer on the device.
    pub optimizer: u64,
    /// Regions of the schedule on the device.
    pub regions: u64,
    /// Blocks of saved activations that stay on the device.
    pub saved: u64,
    /// Values between units of the micro-batches of a sweep beyond its first.
    pub passing: u64,
    /// The tensors of a sweep's micro-batches.
    pub batch: u64,
    /// Of the host's memory: this rank's part of frozen params.
    pub frozen_on_host: u64,
    /// Of the host's memory: this rank's part of trainable params, gradients and optimizer state.
    pub trained_on_host: u64,
    /// Of the host's memory: saved activations.
    pub saved_on_host: u64,
    /// Of the host's memory: what collective calls pass through.
    pub staging: u64,
    /// Of the host's memory: the machine's one copy of frozen params.
    pub machine_copy: u64,
}

/// Computes the buffers of a run.
#[derive(Clone, Copy)]
pub struct StorageLayout<'a> {
    /// Number of units.
    pub units: usize,
    /// All params.
    pub params: &'a [Param],
    /// Dtypes of the run.
    pub dtypes: Dtypes,
    /// How the runs of units are cut among ranks.
    pub shard_layout: &'a ShardLayout,
    /// Bytes of the memory that the schedule's regions share.
    pub region_bytes: u64,
    /// Bytes of pinned memory that collective calls pass through.
    pub staging_bytes: u64,
    /// Most tokens and most sequences of a forward pass.
    pub batch: [u64; 2],
    /// The tensors of a micro-batch behind those that every one has.
    pub by_length: &'a [LengthPositions],
    /// Bytes of the arena and of the kernels' workspace.
    pub scratch: [u64; 2],
}

impl StorageLayout<'_> {
    /// The frozen params of a unit, with their indices.
    pub fn frozen(&self, unit: usize) -> impl Iterator<Item = (usize, &Param)> {
        let params = self.params.iter().enumerate();
        params.filter(move |(_, param)| !param.trainable && param.unit == unit)
    }

    /// The side and the bytes of a rank's part of a unit's state. None for state that is whole, for
    /// frozen params in the machine's copy, and for gradients that regions alone hold.
    pub fn own(&self, unit: usize, kept: StateKind) -> Option<(Side, u64)> {
        if kept == StateKind::Saved {
            let saved = self.shard_layout.saved.get(unit);
            let leaves = saved.filter(|saved| saved.stays_at.is_none());
            return leaves.map(|saved| (Side::Host, saved.bytes * self.shard_layout.sweep));
        }
        if kept == StateKind::Gradients && self.shard_layout.updates_in_backward {
            return None;
        }
        let place = self.shard_layout.placements[unit];
        let elements = self.shard_layout.part_elements(unit);
        let bytes = self.bytes_of(unit, kept, elements);
        let (place, bytes) = match kept {
            StateKind::Frozen => (place.frozen, self.shard_layout.part_bytes(unit)),
            StateKind::Values => (place.trainable, bytes),
            _ => (place.optimizer, bytes),
        };
        match place {
            Place::Sharded => Some((Side::Device, bytes)),
            Place::ShardedOnHost => Some((Side::Host, bytes)),
            Place::Replicated | Place::Host => None,
        }
    }

    /// Bytes of a kind of state that a rank keeps of a unit, which are those of `elements` of its
    /// trainable run.
    pub fn bytes_of(&self, unit: usize, kept: StateKind, elements: u64) -> u64 {
        match kept {
            StateKind::State(tensor) => self.shard_layout.own_state_bytes(unit, tensor),
            StateKind::Gradients => elements * self.dtypes.gradients.bytes(),
            StateKind::Values | StateKind::Frozen | StateKind::Saved => {
                elements * self.dtypes.params.bytes()
            }
        }
    }

    /// Bytes of the tensors of a sweep's micro-batches, and of the scalars that a step reads back:
    /// one, and one per unit.
    fn batch_bytes(&self) -> u64 {
        let scalars = aligned(8) * (1 + self.units as u64);
        self.shard_layout.sweep.max(1) * batch_bytes(self.batch, self.by_length.len()) + scalars
    }

    /// The buffers with their bytes.
    pub fn parts(&self) -> Vec<(Part, u64)> {
        let [gradients, values] = self.shard_layout.whole_elements();
        let tensors = self.shard_layout.optimizer.tensors().len();
        let state = (0..tensors).map(|tensor| {
            (
                Part::State(tensor),
                self.shard_layout.whole_state_bytes(tensor),
            )
        });
        let whole = |unit: &usize| self.shard_layout.placements[*unit].frozen == Place::Replicated;
        let frozen = (0..self.units).filter(whole);
        let frozen = frozen.chain([Param::OF_NO_UNIT]).map(|unit| {
            let bytes = self.frozen(unit).map(|(_, param)| param.bytes()).sum();
            (Part::Frozen(unit), bytes)
        });
        let own = StateKind::all(tensors).flat_map(|kept| {
            [Side::Device, Side::Host].map(|side| {
                let units = (0..self.units).filter_map(|unit| self.own(unit, kept));
                let bytes = units.filter(|(on, _)| *on == side).map(|(_, bytes)| bytes);
                (Part::Own(kept, side), bytes.sum())
            })
        });
        let [arena, workspace] = self.scratch;
        let others = [
            (Part::Values, values * self.dtypes.params.bytes()),
            (Part::Gradients, gradients * self.dtypes.gradients.bytes()),
            (Part::Arena, arena),
            (Part::Batch, self.batch_bytes()),
            (Part::Workspace, workspace),
        ];
        let optional = frozen.chain(own).chain([
            (Part::Regions, self.region_bytes),
            (Part::Staging, self.staging_bytes),
        ]);
        let optional = optional.filter(|(_, bytes)| *bytes > 0);
        optional.chain(others).chain(state).collect()
    }

    /// The bytes of the buffers by what they hold, without arena and workspace.
    pub fn sizes(&self) -> Sizes {
        let mut sizes = Sizes::default();
        for (part, bytes) in self.parts() {
            let host = part.kind() == MemoryKind::PINNED;
            let size = match part {
                Part::Own(StateKind::Frozen, _) if host => &mut sizes.frozen_on_host,
                Part::Own(StateKind::Saved, _) => &mut sizes.saved_on_host,
                Part::Own(_, Side::Host) => &mut sizes.trained_on_host,
                Part::Frozen(_) | Part::Own(StateKind::Frozen, _) => &mut sizes.frozen,
                Part::Values | Part::Own(StateKind::Values, _) => &mut sizes.trainable,
                Part::Gradients | Part::Own(StateKind::Gradients, _) => &mut sizes.gradients,
                Part::State(_) | Part::Own(..) => &mut sizes.optimizer,
                Part::Regions => &mut sizes.regions,
                Part::Staging => &mut sizes.staging,
                Part::Batch => &mut sizes.batch,
                Part::Arena | Part::Workspace => continue,
            };
            *size += bytes;
        }
        sizes.gradients_behind_arena = self.shard_layout.gradients_beyond_blocks();
        sizes.gradients += sizes.gradients_behind_arena;
        let sweep = self.shard_layout.sweep;
        sizes.saved = sweep * self.shard_layout.staying_bytes();
        sizes.passing = sweep.saturating_sub(1) * self.shard_layout.passing_bytes;
        let copied = |unit: &usize| self.shard_layout.placements[*unit].frozen == Place::Host;
        let copied = (0..self.units).filter(copied);
        sizes.machine_copy = copied
            .map(|unit| self.shard_layout.flat_params[unit].frozen_bytes)
            .sum();
        sizes
    }
}

/// Bytes of a micro-batch's tensors: four numbers of each token, the sequences' boundaries, and
/// `by_length` more numbers of each token.
pub fn batch_bytes([max_tokens, max_sequences]: [u64; 2], by_length: usize) -> u64 {
    let per_token = 4 + by_length as u64;
    per_token * aligned(4 * max_tokens) + aligned(4 * (max_sequences + 1))
}
