//! Trainable params and their optimizer state as bytes: the state that lasts from step to step.

use std::ops::Range;

use espalier_interface::optimizer::{OptimizerSpec, StateTensor};
use espalier_interface::{BufferRange, DType, PluginError, Stream, WeightLayout};
use espalier_plan::storage_layout::StateKind;

use super::Executor;
use super::storage;
use crate::Error;
use crate::error::BackendCall;

/// A part of a trainable param's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatePart {
    /// Its values.
    Values,
    /// A tensor of the optimizer's state, by its index.
    State(usize),
}

impl Executor {
    /// Indices of the trainable params, in their order.
    pub fn trainable(&self) -> Vec<usize> {
        let params = self.params.iter().enumerate();
        let trainable = params.filter(|(_, param)| param.trainable);
        trainable.map(|(index, _)| index).collect()
    }

    /// The parts of a trainable param's state: its values, then what its optimizer keeps.
    pub fn state_parts(&self, param: usize) -> Vec<StatePart> {
        let size = self.optimizer().size_of(self.params[param].elements());
        let state = self.optimizer().tensors_of(size).map(StatePart::State);
        std::iter::once(StatePart::Values).chain(state).collect()
    }

    /// The name of a tensor of the optimizer's state; none for values.
    pub fn state_name(&self, part: StatePart) -> Option<&str> {
        match part {
            StatePart::Values => None,
            StatePart::State(tensor) => Some(&self.tensor(tensor).name),
        }
    }

    /// The shape of a part of a trainable param.
    pub fn state_shape(&self, param: usize, part: StatePart) -> Vec<u64> {
        let shape = &self.params[param].shape;
        match part {
            StatePart::Values => shape.clone(),
            StatePart::State(tensor) => self.tensor(tensor).shape(shape),
        }
    }

    /// The dtype of a part of a trainable param on the device.
    pub fn state_dtype(&self, param: usize, part: StatePart) -> DType {
        match (&self.params[param].layout, part) {
            (WeightLayout::Dense(dtype), StatePart::Values) => *dtype,
            (_, StatePart::Values) => self.dtypes.params,
            (_, StatePart::State(tensor)) => self.tensor(tensor).dtype,
        }
    }

    /// The elements of a part of a trainable param that this rank keeps: all, unless it is cut.
    pub fn own_elements(&self, param: usize, part: StatePart) -> Range<u64> {
        self.own_piece(param, part.kept()).0
    }

    /// Passes the bytes of this rank's elements of a part of a trainable param, little-endian, at
    /// most 1 MiB at once.
    ///
    /// # Errors
    /// `Error::Plugin`: a call to the backend failed. The error of `take`.
    pub fn download_state<E: From<Error>>(
        &self,
        param: usize,
        part: StatePart,
        take: &mut dyn FnMut(&[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.download_parts(self.state_range(param, part), take)
    }

    /// The bytes of some of this rank's elements of a part of a trainable param, little-endian.
    ///
    /// # Errors
    /// `INVALID` for elements that this rank does not keep. The error of a call to the backend.
    pub fn state_bytes(
        &self,
        param: usize,
        part: StatePart,
        elements: Range<u64>,
    ) -> crate::Result<Vec<u8>> {
        let (own, piece) = self.own_piece(param, part.kept());
        if elements.start < own.start || elements.end > own.end {
            let given = Err(PluginError::invalid(format!(
                "elements {elements:?} of param `{}`, of which this rank keeps {own:?}",
                self.params[param].name
            )));
            return given.during("download");
        }
        let within = elements.start - own.start..elements.end - own.start;
        let range = storage::part(piece, &within, self.state_dtype(param, part).bytes());
        let mut bytes = vec![0; range.bytes as usize];
        self.download(range, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes `bytes`, little-endian, to a part of a trainable param from byte `offset` on. Bytes
    /// that other ranks keep are skipped.
    ///
    /// # Errors
    /// `Error::Plugin` for bytes beyond its end, and for a call to the backend that failed.
    pub fn upload_state(
        &self,
        param: usize,
        part: StatePart,
        offset: u64,
        bytes: &[u8],
    ) -> crate::Result<()> {
        let each = self.state_dtype(param, part).bytes();
        let (elements, piece) = self.own_piece(param, part.kept());
        let end = offset + bytes.len() as u64;
        let all = self.state_shape(param, part).iter().product::<u64>() * each;
        if end > all {
            let given = Err(PluginError::invalid(format!(
                "param `{}` has {all} bytes, {end} were given",
                self.params[param].name
            )));
            return given.during("upload");
        }
        let own = elements.start * each..elements.end * each;
        let (first, last) = (offset.max(own.start), end.min(own.end));
        if first >= last {
            return Ok(());
        }
        let range = storage::part(piece, &(first - own.start..last - own.start), 1);
        let bytes = &bytes[(first - offset) as usize..(last - offset) as usize];
        self.changes_state()?;
        let written = self.device.upload(bytes, range, Stream(0));
        self.since_wait.during("upload", written)
    }

    /// The location of this rank's elements of a part of a trainable param.
    pub(super) fn state_range(&self, param: usize, part: StatePart) -> BufferRange {
        self.own_piece(param, part.kept()).1
    }

    /// The optimizer.
    pub fn optimizer(&self) -> &OptimizerSpec {
        &self.shard_layout.optimizer
    }

    fn tensor(&self, tensor: usize) -> &StateTensor {
        self.optimizer().tensors()[tensor].1
    }

    /// The elements of a unit's trainable run that this rank keeps.
    pub(super) fn own_run(&self, unit: usize) -> Range<u64> {
        let part = u64::from(self.peers.shard().0);
        self.shard_layout.own_run(unit, part)
    }

    /// The elements of a kind of a trainable param's state that this rank keeps, and the range that
    /// holds them.
    pub(super) fn own_piece(&self, param: usize, kept: StateKind) -> (Range<u64>, BufferRange) {
        let unit = self.params[param].unit;
        let of_run = self.shard_layout.flat_params[unit].elements_of(param);
        let own = self.own_run(unit);
        let first = own.start;
        let begin = first.clamp(of_run.start, of_run.end);
        let end = own.end.clamp(begin, of_run.end);
        let run = self.storage.kept(unit, kept);
        if begin == end {
            return (0..0, storage::part(run, &(0..0), 1));
        }
        let (of_param, of_part) = (
            begin - of_run.start..end - of_run.start,
            begin - first..end - first,
        );
        match kept {
            StateKind::State(tensor) => {
                let range = (self.shard_layout).state_range(unit, tensor, first, &(begin..end));
                let tensor = self.tensor(tensor);
                let piece = storage::part(run, &range, tensor.dtype.bytes());
                (tensor.range(&of_param), piece)
            }
            StateKind::Gradients => {
                let piece = storage::part(run, &of_part, self.dtypes.gradients.bytes());
                (of_param, piece)
            }
            StateKind::Values | StateKind::Frozen | StateKind::Saved => {
                let piece = storage::part(run, &of_part, self.dtypes.params.bytes());
                (of_param, piece)
            }
        }
    }
}

impl StatePart {
    fn kept(self) -> StateKind {
        match self {
            StatePart::Values => StateKind::Values,
            StatePart::State(tensor) => StateKind::State(tensor),
        }
    }
}
