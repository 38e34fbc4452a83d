//! `hqq`: a weight -> codes, scales and zeros.

use std::sync::Arc;

use espalier_interface::format::{BitOrder, Codes, Decoding, Format, SegmentSpec};
use espalier_interface::saved_form::{SavedDescription, SavedForm, SavedModel};
use espalier_interface::{DType, ErrorCode, Options, PluginError, Quantizer, Result, Services};
use serde_json::Value as Json;

use crate::grouping::{Affine, Axis, Grouping};
use crate::meta::MetaStore;
use crate::pack::pack;
use crate::problem::Problem;
use crate::profile::Profile;
use crate::saved;
use crate::solve::{RUN, Scratch, count_sums, solve};
use crate::start::{StartZero, start};

/// Whether the half-quadratic solver moves the zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeros {
    /// They stay where the smallest weights put them.
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
    /// How groups lie.
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

/// Numbers that the workspace may lose to alignment.
const ALIGNMENT: usize = 1;

impl HqqQuantizer {
    fn groups(&self, shape: [u64; 2]) -> Result<Grouping> {
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

    fn codes(&self, groups: Grouping) -> Codes {
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
    fn room(&self, groups: Grouping) -> [usize; 4] {
        let count = groups.count;
        let (zeros, sums) = match self.zeros {
            Zeros::Kept => (count, 0),
            Zeros::Solved => ((RUN + 1) * count, count_sums(groups.elements())),
        };
        [count, zeros, sums, self.meta.workspace(count)]
    }
}

impl Quantizer for HqqQuantizer {
    fn format(&self, shape: [u64; 2]) -> Result<Format> {
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

    fn encode(
        &self,
        weight: &[f32],
        shape: [u64; 2],
        segments: &mut [&mut [u8]],
        workspace: &mut [u8],
    ) -> Result<()> {
        let groups = self.groups(shape)?;
        let problem = Problem {
            weight,
            groups,
            top: ((1u32 << self.bits) - 1) as f32,
            profile: self.profile,
            services: self.services.as_ref(),
        };
        let (_, room, _) = bytemuck::pod_align_to_mut::<u8, f32>(workspace);
        let [count, zeros, sums, meta] = self.room(groups);
        let (scale, room) = room.split_at_mut(count);
        let (zeros, room) = room.split_at_mut(zeros);
        let (sums, room) = room.split_at_mut(sums);
        // BaseQuantizeConfig: round_zero where there are 4 bits.
        let start_zero = match self.bits {
            4 => StartZero::Rounded,
            _ => StartZero::Exact,
        };
        start(&problem, start_zero, scale, &mut zeros[..count])?;
        if self.zeros == Zeros::Solved {
            solve(&problem, scale, Scratch { zeros, sums })?;
        }
        let zero = &zeros[..count];
        let [codes, stored @ ..] = segments else {
            panic!("{} segments are not of this format", segments.len());
        };
        pack(&problem, Affine { scale, zero }, &self.codes(groups), codes);
        problem.heed_cancel()?;
        scale.iter_mut().for_each(|scale| *scale = 1.0 / *scale);
        check(&problem, Affine { scale, zero })?;
        let numbers = Affine { scale, zero };
        self.meta
            .write(numbers, &problem, stored, &mut room[..meta])
    }

    fn encode_workspace(&self, shape: [u64; 2]) -> Result<u64> {
        let numbers = self.room(self.groups(shape)?).iter().sum::<usize>() + ALIGNMENT;
        Ok(DType::F32.bytes() * numbers as u64)
    }

    fn saved_form(&self, shape: [u64; 2], _: DType) -> Result<SavedForm> {
        saved::form(self, shape)
    }

    fn quantization_config(&self, model: &SavedModel) -> Result<Json> {
        saved::config(self, model)
    }

    fn options_from_saved(&self, saved: &SavedDescription) -> Result<Options> {
        saved::options(saved)
    }
}

/// # Errors
/// `NOT_FINITE` where the numbers of a group overflowed f32.
fn check(problem: &Problem, numbers: Affine) -> Result<()> {
    let mut pairs = numbers.scale.iter().zip(numbers.zero);
    let overflows =
        |(scale, zero): (&f32, &f32)| !(scale.is_finite() && (scale * zero).is_finite());
    match pairs.position(overflows) {
        None => Ok(()),
        Some(group) => Err(PluginError::new(
            ErrorCode::NOT_FINITE,
            format!(
                "the scale or the zero of group {group} of {} overflows f32, expected weights of ordinary size",
                problem.groups.count
            ),
        )),
    }
}
