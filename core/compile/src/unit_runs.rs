//! A unit's params -> their places in its two runs: one of frozen bytes, one of trainable elements.

use std::ops::Range;

use crate::arena::aligned;
use crate::params::Param;

/// Lengths are rounded up to a multiple of this: at least 64 bytes in every dtype.
const STEP: u64 = 64;

/// Places of a unit's params: a run is a contiguous buffer of all of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitRuns {
    /// Frozen params by their index, with the bytes of each of their segments in the frozen run.
    pub frozen: Vec<(usize, Vec<Range<u64>>)>,
    /// Length of the frozen run in bytes.
    pub frozen_bytes: u64,
    /// Trainable params by their index, with their elements in the trainable run.
    pub trainable: Vec<(usize, Range<u64>)>,
    /// Length of the trainable run in elements, each param rounded up to a multiple of 64.
    pub elements: u64,
}

impl UnitRuns {
    /// The runs of the unit with index `unit`.
    pub fn of(params: &[Param], unit: usize) -> Self {
        let mut runs = UnitRuns::default();
        let of_unit = params.iter().enumerate();
        for (index, param) in of_unit.filter(|(_, param)| param.unit == unit) {
            if param.trainable {
                let begin = runs.elements;
                runs.trainable
                    .push((index, begin..begin + param.elements()));
                runs.elements += param.elements().next_multiple_of(STEP);
            } else {
                let mut segments = Vec::new();
                for bytes in param.run_bytes() {
                    segments.push(runs.frozen_bytes..runs.frozen_bytes + bytes);
                    runs.frozen_bytes += aligned(bytes);
                }
                runs.frozen.push((index, segments));
            }
        }
        runs
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

    /// The runs of all units.
    pub fn of_all(params: &[Param], units: usize) -> Vec<Self> {
        (0..units).map(|unit| UnitRuns::of(params, unit)).collect()
    }
}

/// The length of each of `parts` equal parts of a run, a multiple of 64. The last parts may be
/// short or empty, and the padded run may be longer than the run.
pub fn part_length(run: u64, parts: u64) -> u64 {
    run.div_ceil(parts).next_multiple_of(STEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_a_run_and_may_be_empty() {
        assert_eq!(part_length(640, 1), 640);
        assert_eq!(part_length(640, 3), 256);
        assert_eq!(part_length(64, 7), 64);
        assert_eq!(part_length(0, 4), 0);
    }
}
