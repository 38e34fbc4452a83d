//! Params and the sizes of passes -> the buffers of a run, each with its bytes.

use espalier_interface::MemoryKind;
use espalier_interface::schedule::Place;

use super::Sizes;
use crate::arena::aligned;
use crate::executor::Cutting;
use crate::params::{Dtypes, Param};

/// What a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// The frozen params of a unit, whole.
    Frozen(usize),
    /// Those of trainable params that are not cut.
    Values,
    Gradients,
    FirstMoment,
    SecondMoment,
    /// This rank's parts of what is cut.
    Own(Kept, Side),
    /// What the schedule brings.
    Regions,
    Arena,
    Batch,
    Workspace,
}

/// What of a unit is kept from step to step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kept {
    Frozen,
    Values,
    Gradients,
    FirstMoment,
    SecondMoment,
    /// Activations, from a unit's forward to its backward pass.
    Saved,
}

impl Kept {
    pub const ALL: [Kept; 6] = [
        Kept::Frozen,
        Kept::Values,
        Kept::Gradients,
        Kept::FirstMoment,
        Kept::SecondMoment,
        Kept::Saved,
    ];
}

/// On which side of the bus parts are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Device,
    Host,
}

impl Part {
    /// The memory that it lies in.
    pub fn kind(self) -> MemoryKind {
        match self {
            Part::Own(_, Side::Host) => MemoryKind::PINNED,
            _ => MemoryKind::DEVICE,
        }
    }
}

/// What a run's buffers follow from.
#[derive(Clone, Copy)]
pub struct StorageLayout<'a> {
    /// Units.
    pub units: usize,
    /// All params.
    pub params: &'a [Param],
    /// Dtypes.
    pub dtypes: Dtypes,
    /// How units' runs are cut.
    pub cutting: &'a Cutting,
    /// Bytes of all that the schedule brings at once.
    pub region_bytes: u64,
    /// Most tokens and sequences of a pass.
    pub batch: [u64; 2],
    /// Bytes of the arena and of the kernels' workspace.
    pub scratch: [u64; 2],
}

impl StorageLayout<'_> {
    /// The frozen params of a unit, with their indices.
    pub(super) fn frozen(&self, unit: usize) -> impl Iterator<Item = (usize, &Param)> {
        let params = self.params.iter().enumerate();
        params.filter(move |(_, param)| !param.trainable && param.unit == unit)
    }

    /// Where a rank's part of what a unit keeps lies, and its bytes; none for what is whole, and for what is in the
    /// machine's copy.
    pub(super) fn own(&self, unit: usize, kept: Kept) -> Option<(Side, u64)> {
        if kept == Kept::Saved {
            let saved = self.cutting.saved.get(unit);
            let leaves = saved.filter(|saved| saved.stays_at.is_none());
            return leaves.map(|saved| (Side::Host, saved.bytes));
        }
        let place = self.cutting.placements[unit];
        let elements = self.cutting.part_elements(unit);
        let (place, bytes) = match kept {
            Kept::Frozen => (place.frozen, self.cutting.part_bytes(unit)),
            Kept::Values => (place.trainable, elements * self.dtypes.params.bytes()),
            _ => (place.optimizer, elements * self.dtypes.reduce.bytes()),
        };
        match place {
            Place::Sharded => Some((Side::Device, bytes)),
            Place::ShardedOnHost => Some((Side::Host, bytes)),
            Place::Replicated | Place::Host => None,
        }
    }

    /// The buffers with their bytes.
    pub(super) fn parts(&self) -> Vec<(Part, u64)> {
        let [state, values] = self.cutting.whole_elements();
        let reduced = state * self.dtypes.reduce.bytes();
        let whole = |unit: &usize| self.cutting.placements[*unit].frozen == Place::Replicated;
        let frozen = (0..self.units).filter(whole).map(|unit| {
            let bytes = self.frozen(unit).map(|(_, param)| param.bytes()).sum();
            (Part::Frozen(unit), bytes)
        });
        let own = Kept::ALL.into_iter().flat_map(|kept| {
            [Side::Device, Side::Host].map(|side| {
                let units = (0..self.units).filter_map(|unit| self.own(unit, kept));
                let bytes = units.filter(|(on, _)| *on == side).map(|(_, bytes)| bytes);
                (Part::Own(kept, side), bytes.sum())
            })
        });
        let [arena, workspace] = self.scratch;
        let others = [
            (Part::Values, values * self.dtypes.params.bytes()),
            (Part::Gradients, reduced),
            (Part::FirstMoment, reduced),
            (Part::SecondMoment, reduced),
            (Part::Arena, arena),
            (Part::Batch, batch_bytes(self.batch, self.units)),
            (Part::Workspace, workspace),
        ];
        let optional = frozen
            .chain(own)
            .chain([(Part::Regions, self.region_bytes)]);
        let optional = optional.filter(|(_, bytes)| *bytes > 0);
        optional.chain(others).collect()
    }

    /// The bytes of the buffers by what they hold, beside arena and workspace.
    pub fn sizes(&self) -> Sizes {
        let mut sizes = Sizes::default();
        for (part, bytes) in self.parts() {
            let host = part.kind() == MemoryKind::PINNED;
            let size = match part {
                Part::Own(Kept::Frozen, _) if host => &mut sizes.frozen_on_host,
                Part::Own(Kept::Saved, _) => &mut sizes.saved_on_host,
                Part::Own(_, Side::Host) => &mut sizes.trained_on_host,
                Part::Frozen(_) | Part::Own(Kept::Frozen, _) => &mut sizes.frozen,
                Part::Values | Part::Own(Kept::Values, _) => &mut sizes.trainable,
                Part::Gradients | Part::Own(Kept::Gradients, _) => &mut sizes.gradients,
                Part::FirstMoment | Part::SecondMoment | Part::Own(..) => &mut sizes.optimizer,
                Part::Regions => &mut sizes.regions,
                Part::Batch => &mut sizes.batch,
                Part::Arena | Part::Workspace => continue,
            };
            *size += bytes;
        }
        sizes.saved = self.cutting.staying_bytes();
        let copied = |unit: &usize| self.cutting.placements[*unit].frozen == Place::Host;
        let copied = (0..self.units).filter(copied);
        sizes.machine_copy = copied
            .map(|unit| self.cutting.runs[unit].frozen_bytes)
            .sum();
        sizes
    }
}

/// Bytes of a micro-batch's tensors and of the numbers that a step reads back: one, and one for each unit.
pub(super) fn batch_bytes([max_tokens, max_sequences]: [u64; 2], units: usize) -> u64 {
    4 * aligned(4 * max_tokens) + aligned(4 * (max_sequences + 1)) + aligned(8) * (1 + units as u64)
}
