//! The options of `hqq` -> how it stores a weight.

use std::sync::Arc;

use espalier_interface::format::{BitOrder, Codes, Decoding, Format, SegmentSpec};
use espalier_interface::{PluginError, Result, Services};

use crate::grouping::{Axis, Grouping};
use crate::meta::MetaStore;
use crate::profile::Profile;
use crate::solve::{RUN, count_sums};

/// Whether the half-quadratic solver moves the zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeros {
    /// They keep the values that the smallest weights give.
    Kept,
    /// The solver moves them.
    Solved,
}

/// The quantizer, with checked options.
pub struct HqqQuantizer {
    /// Bits of a code: 8, 6, 5, 4, 3, 2 or 1.
    pub bits: u32,
    /// Weights a group, a multiple of 8.
    pub group_size: u64,
    /// How groups are arranged.
    pub axis: Axis,
    /// Which version of hqq to follow.
    pub profile: Profile,
    /// Whether the solver runs.
    pub zeros: Zeros,
    /// How scales and zeros are stored.
    pub meta: MetaStore,
    /// The host's threads.
    pub services: Arc<dyn Services>,
}

impl HqqQuantizer {
    /// How a weight of `shape`, `[out, in]`, is stored.
    ///
    /// # Errors
    /// `INVALID` for a shape that does not divide into groups and bytes.
    pub fn format(&self, shape: [u64; 2]) -> Result<Format> {
        let groups = self.groups(shape)?;
        let codes = self.codes(groups);
        let words = codes.words(groups.elements() as u64);
        let mut segments = vec![SegmentSpec::new("codes", codes.dtype(), words)];
        let (meta, scale, zero) = self.meta.segments(groups.count, 1)?;
        segments.extend(meta);
        Ok(Format {
            quantizer: "hqq".to_owned(),
            shape,
            segments,
            decoding: Decoding::Affine {
                codes,
                blocks: groups.block_map(),
                scale,
                zero,
            },
        })
    }

    pub(super) fn groups(&self, shape: [u64; 2]) -> Result<Grouping> {
        let groups = Grouping::of(self.axis, self.group_size, shape)?;
        let rows = groups.matrix()[0];
        let per_byte = match self.bits {
            4 | 2 | 1 => 8 / self.bits as usize,
            _ => 1,
        };
        if !rows.is_multiple_of(per_byte) {
            let way_out = match self.axis {
                Axis::Consecutive => "choose another group_size, axis = 0, or 8 or 3 bits",
                Axis::Strided => "choose another group_size, or 8 or 3 bits",
            };
            return Err(PluginError::invalid(format!(
                "hqq packs {} bits of {per_byte} groups of a weight into a byte, and a weight of shape {shape:?} has \
                 {rows} groups of {}; {way_out}",
                self.bits, self.group_size
            )));
        }
        Ok(groups)
    }

    pub(super) fn codes(&self, groups: Grouping) -> Codes {
        let [rows, cols] = groups.matrix();
        let mut codes = Codes {
            segment: 0,
            bits: self.bits,
            order: BitOrder::Split { words: 0 },
        };
        let words = rows.div_ceil(codes.per_word() as usize) * cols;
        codes.order = BitOrder::Split {
            words: words as u64,
        };
        codes
    }

    /// Numbers of workspace: scales, zeros, sums of errors, and what storing them needs.
    pub(super) fn room(&self, groups: Grouping) -> [usize; 4] {
        let count = groups.count;
        let (zeros, sums) = match self.zeros {
            Zeros::Kept => (count, 0),
            Zeros::Solved => ((RUN + 1) * count, count_sums(groups.elements())),
        };
        [count, zeros, sums, self.meta.workspace(count)]
    }
}
