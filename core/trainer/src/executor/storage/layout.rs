//! Params and the sizes of passes -> the buffers of a run, each with its bytes.

use super::Storage;
use crate::arena::aligned;
use crate::params::{Dtypes, Param};

/// What a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// The frozen params of a unit.
    Frozen(usize),
    Values,
    Gradients,
    FirstMoment,
    SecondMoment,
    Arena,
    Batch,
    Workspace,
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

    /// The buffers with their bytes.
    pub(super) fn parts(&self) -> Vec<(Part, u64)> {
        let elements = Storage::trainable_elements(self.params);
        let reduced = elements * self.dtypes.reduce.bytes();
        let frozen = (0..self.units).map(|unit| {
            let bytes = self.frozen(unit).map(|(_, param)| param.bytes()).sum();
            (Part::Frozen(unit), bytes)
        });
        let [arena, workspace] = self.scratch;
        let others = [
            (Part::Values, elements * self.dtypes.params.bytes()),
            (Part::Gradients, reduced),
            (Part::FirstMoment, reduced),
            (Part::SecondMoment, reduced),
            (Part::Arena, arena),
            (Part::Batch, batch_bytes(self.batch)),
            (Part::Workspace, workspace),
        ];
        let frozen = frozen.filter(|(_, bytes)| *bytes > 0);
        frozen.chain(others).collect()
    }
}

/// Bytes of a micro-batch's tensors and of the number that a step reads back.
pub(super) fn batch_bytes([max_tokens, max_sequences]: [u64; 2]) -> u64 {
    4 * aligned(4 * max_tokens) + aligned(4 * (max_sequences + 1)) + aligned(8)
}
