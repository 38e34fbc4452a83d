//! A unit's params -> their places in two flat buffers: frozen bytes and trainable elements.

use std::ops::Range;

use espalier_interface::optimizer::{OptimizerSpec, ParamSize};

use crate::arena::aligned;
use crate::params::Param;

/// Lengths of frozen parts are rounded up to a multiple of this many bytes.
const STEP: u64 = 64;

/// Places of a unit's params: a flat buffer has all params of one kind, one after the other. Of the
/// trainable ones, those that are small for the optimizer come last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlatParams {
    /// Frozen params by their index, with the bytes of each of their segments in the frozen buffer.
    pub frozen: Vec<(usize, Vec<Range<u64>>)>,
    /// Length of the frozen buffer in bytes.
    pub frozen_bytes: u64,
    /// Trainable params by their index, with their elements in the trainable buffer.
    pub trainable: Vec<(usize, Range<u64>)>,
    /// Length of the trainable buffer in elements, each param rounded up to a multiple of the
    /// granule of its optimizer.
    pub elements: u64,
    /// The element from which on trainable params are small.
    pub small_from: u64,
    /// Elements at whose multiples the trainable buffer is cut; see [`OptimizerSpec::granule`].
    pub granule: u64,
}

impl FlatParams {
    /// Those of the unit with index `unit`, whose trainable params `optimizer` updates.
    pub fn of(params: &[Param], unit: usize, optimizer: &OptimizerSpec) -> Self {
        let mut flat = FlatParams::default();
        let of_unit = params.iter().enumerate();
        let of_unit = of_unit.filter(|(_, param)| param.unit == unit);
        for (index, param) in of_unit.clone().filter(|(_, param)| !param.trainable) {
            let mut segments = Vec::new();
            for bytes in param.segment_bytes() {
                segments.push(flat.frozen_bytes..flat.frozen_bytes + bytes);
                flat.frozen_bytes += aligned(bytes);
            }
            flat.frozen.push((index, segments));
        }
        let of_size = |size| {
            let trainable = of_unit.clone().filter(|(_, param)| param.trainable);
            trainable.filter(move |(_, param)| optimizer.size_of(param.elements()) == size)
        };
        let small = of_size(ParamSize::Small).next().is_some();
        flat.granule = match of_size(ParamSize::Large).next() {
            None if small => optimizer.of_size(ParamSize::Small).granule(),
            _ => optimizer.granule(),
        };
        flat.append(of_size(ParamSize::Large), flat.granule);
        flat.small_from = flat.elements;
        let granule = optimizer.of_size(ParamSize::Small).granule();
        flat.append(of_size(ParamSize::Small), granule);
        flat
    }

    /// Appends trainable params, each rounded up to a multiple of `granule` elements.
    fn append<'a>(&mut self, params: impl Iterator<Item = (usize, &'a Param)>, granule: u64) {
        for (index, param) in params {
            let (begin, elements) = (self.elements, param.elements());
            self.trainable.push((index, begin..begin + elements));
            self.elements += elements.next_multiple_of(granule);
        }
    }

    /// The part of a range of the trainable buffer whose params are of a size, counted from the
    /// first element of such params.
    pub fn of_size(&self, size: ParamSize, elements: &Range<u64>) -> Range<u64> {
        let [begin, end] = match size {
            ParamSize::Large => [0, self.small_from],
            ParamSize::Small => [self.small_from, self.elements],
        };
        elements.start.clamp(begin, end) - begin..elements.end.clamp(begin, end) - begin
    }

    /// The bytes of each segment of a frozen param of the unit.
    ///
    /// # Panics
    /// For any other param.
    pub fn segments_of(&self, param: usize) -> &[Range<u64>] {
        let mut frozen = self.frozen.iter();
        let found = frozen.find(|(index, _)| *index == param);
        &found.expect("a frozen param of the unit").1
    }

    /// The elements of a trainable param of the unit.
    ///
    /// # Panics
    /// For any other param.
    pub fn elements_of(&self, param: usize) -> &Range<u64> {
        let mut trainable = self.trainable.iter();
        let found = trainable.find(|(index, _)| *index == param);
        &found.expect("a trainable param of the unit").1
    }

    /// Those of all units.
    pub fn of_all(params: &[Param], units: usize, optimizer: &OptimizerSpec) -> Vec<Self> {
        let units = 0..units;
        units
            .map(|unit| FlatParams::of(params, unit, optimizer))
            .collect()
    }

    /// Bytes of the optimizer's state of the whole trainable buffer.
    pub fn state_bytes(&self, optimizer: &OptimizerSpec) -> u64 {
        let sizes = [
            (ParamSize::Large, self.small_from),
            (ParamSize::Small, self.elements - self.small_from),
        ];
        let bytes = sizes.map(|(size, elements)| optimizer.of_size(size).state_bytes(elements));
        bytes.iter().sum()
    }

    /// Elements of each of `parts` equal parts of the trainable buffer.
    pub fn part_elements(&self, parts: u64) -> u64 {
        part_length(self.elements, parts, self.granule)
    }

    /// Bytes of each of `parts` equal parts of the frozen buffer.
    pub fn part_bytes(&self, parts: u64) -> u64 {
        part_length(self.frozen_bytes, parts, STEP)
    }
}

/// The length of each of `parts` equal parts of a buffer, a multiple of `step`. The last parts may
/// be short or empty, and the padded buffer may be longer than the buffer.
fn part_length(length: u64, parts: u64, step: u64) -> u64 {
    length.div_ceil(parts).next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_a_buffer_and_may_be_empty() {
        assert_eq!(part_length(640, 1, 64), 640);
        assert_eq!(part_length(640, 3, 64), 256);
        assert_eq!(part_length(640, 4, 256), 256);
        assert_eq!(part_length(64, 7, 64), 64);
        assert_eq!(part_length(0, 4, 64), 0);
    }
}
