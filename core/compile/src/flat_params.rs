//! A unit's params -> their places in two flat buffers: frozen bytes and trainable elements.

use std::ops::Range;

use crate::arena::aligned;
use crate::params::Param;

/// Lengths of frozen parts are rounded up to a multiple of this many bytes.
const STEP: u64 = 64;

/// Places of a unit's params: a flat buffer has all params of one kind, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlatParams {
    /// Frozen params by their index, with the bytes of each of their segments in the frozen buffer.
    pub frozen: Vec<(usize, Vec<Range<u64>>)>,
    /// Length of the frozen buffer in bytes.
    pub frozen_bytes: u64,
    /// Trainable params by their index, with their elements in the trainable buffer.
    pub trainable: Vec<(usize, Range<u64>)>,
    /// Length of the trainable buffer in elements, each param rounded up to a multiple of
    /// `granule`.
    pub elements: u64,
    /// Elements at whose multiples trainable params begin and the buffer is cut; see
    /// [`OptimizerSpec::granule`](espalier_interface::optimizer::OptimizerSpec::granule).
    pub granule: u64,
}

impl FlatParams {
    /// Those of the unit with index `unit`, whose trainable params begin at multiples of
    /// `granule` elements.
    pub fn of(params: &[Param], unit: usize, granule: u64) -> Self {
        let mut flat = FlatParams {
            granule,
            ..FlatParams::default()
        };
        let of_unit = params.iter().enumerate();
        for (index, param) in of_unit.filter(|(_, param)| param.unit == unit) {
            if param.trainable {
                let begin = flat.elements;
                flat.trainable
                    .push((index, begin..begin + param.elements()));
                flat.elements += param.elements().next_multiple_of(granule);
            } else {
                let mut segments = Vec::new();
                for bytes in param.segment_bytes() {
                    segments.push(flat.frozen_bytes..flat.frozen_bytes + bytes);
                    flat.frozen_bytes += aligned(bytes);
                }
                flat.frozen.push((index, segments));
            }
        }
        flat
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
    pub fn of_all(params: &[Param], units: usize, granule: u64) -> Vec<Self> {
        let units = 0..units;
        units
            .map(|unit| FlatParams::of(params, unit, granule))
            .collect()
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
