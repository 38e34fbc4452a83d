//! Params and the placements of their units -> the layout of a machine's memory while its ranks
//! load.
//!
//! Frozen runs that stay in the machine's copy are loaded to their final places, each from the
//! start of a page. All other runs pass through one buffer as large as the largest unit. There a
//! run is loaded whole, and every rank copies its part.

use std::ops::Range;

use espalier_compile::flat_params::FlatParams;
use espalier_compile::params::Dtypes;
use espalier_interface::schedule::{Part, Place};

use crate::shard_layout::ShardLayout;

/// Bytes of a memory page, or a multiple of it.
const PAGE: u64 = 4096;

/// The host buffer that holds a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageRegion {
    /// The machine's copy, which stays.
    Copy,
    /// The buffer that runs pass through.
    Passing,
}

/// A run of a unit while it is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedRun {
    /// Its part of the unit: `Frozen` or `Trainable`.
    pub part: Part,
    /// The buffer that holds it.
    pub region: StageRegion,
    /// Its bytes in that buffer; a cut run is padded to equal parts.
    pub bytes: Range<u64>,
    /// The params in it by their index, with the bytes of each of their segments in the buffer.
    pub params: Vec<(usize, Vec<Range<u64>>)>,
}

/// The layout of all runs while loading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageLayout {
    /// For each unit, its runs; runs without params are left out.
    pub units: Vec<Vec<StagedRun>>,
    /// Bytes of the machine's copy.
    pub copy_bytes: u64,
    /// Bytes of the buffer that runs pass through.
    pub passing_bytes: u64,
}

impl StageLayout {
    /// The layout for runs that are cut as `shard_layout` says.
    pub fn new(shard_layout: &ShardLayout, dtypes: Dtypes) -> Self {
        let mut layout = StageLayout::default();
        for (flat, placement) in shard_layout
            .flat_params
            .iter()
            .zip(&shard_layout.placements)
        {
            let staged = layout.unit(flat, placement.frozen, shard_layout.parts, dtypes);
            layout.units.push(staged);
        }
        layout
    }

    /// The bytes of a unit's frozen run in the machine's copy, if it stays there.
    pub fn copied(&self, unit: usize) -> Option<Range<u64>> {
        let mut runs = self.units[unit].iter();
        let run = runs.find(|run| run.region == StageRegion::Copy)?;
        Some(run.bytes.clone())
    }

    /// The units whose frozen runs stay in the machine's copy, each with the offset of its run.
    pub fn copies(&self) -> Vec<(usize, u64)> {
        let units = 0..self.units.len();
        units
            .filter_map(|unit| Some((unit, self.copied(unit)?.start)))
            .collect()
    }

    fn unit(
        &mut self,
        flat: &FlatParams,
        frozen: Place,
        parts: u64,
        dtypes: Dtypes,
    ) -> Vec<StagedRun> {
        let mut staged = Vec::new();
        let mut passing = 0;
        if !flat.frozen.is_empty() {
            let (region, begin, bytes) = match frozen {
                Place::Host => (StageRegion::Copy, self.copy_bytes, flat.frozen_bytes),
                _ => {
                    let padded = flat.part_bytes(parts) * parts;
                    (StageRegion::Passing, passing, padded)
                }
            };
            let end = begin + bytes;
            match region {
                StageRegion::Copy => self.copy_bytes = end.next_multiple_of(PAGE),
                StageRegion::Passing => passing = end.next_multiple_of(PAGE),
            }
            staged.push(StagedRun {
                part: Part::Frozen,
                region,
                bytes: begin..end,
                params: places(&flat.frozen, begin),
            });
        }
        if !flat.trainable.is_empty() {
            let each = dtypes.params.bytes();
            let end = passing + flat.part_elements(parts) * parts * each;
            let elements = flat.trainable.iter();
            let bytes = elements.map(|(index, elements)| {
                let bytes = elements.start * each..elements.end * each;
                (*index, Vec::from([bytes]))
            });
            staged.push(StagedRun {
                part: Part::Trainable,
                region: StageRegion::Passing,
                bytes: passing..end,
                params: places(&bytes.collect::<Vec<_>>(), passing),
            });
            passing = end.next_multiple_of(PAGE);
        }
        self.passing_bytes = self.passing_bytes.max(passing);
        staged
    }
}

impl StagedRun {
    /// The bytes of the run that belong to no param: its padding.
    pub fn gaps(&self) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = self.bytes.start;
        for range in self.params.iter().flat_map(|(_, ranges)| ranges) {
            gaps.push(at..range.start);
            at = range.end;
        }
        gaps.push(at..self.bytes.end);
        gaps.retain(|gap| !gap.is_empty());
        gaps
    }
}

/// The segments of params, moved to a run that begins at byte `begin`.
fn places(params: &[(usize, Vec<Range<u64>>)], begin: u64) -> Vec<(usize, Vec<Range<u64>>)> {
    let moved = |range: &Range<u64>| range.start + begin..range.end + begin;
    let params = params.iter();
    params
        .map(|(index, ranges)| (*index, ranges.iter().map(moved).collect()))
        .collect()
}

#[cfg(test)]
mod tests;
