//! `hqq`: a weight -> codes, scales and zeros.

use espalier_interface::format::Format;
use espalier_interface::saved_form::{SavedDescription, SavedForm, SavedModel};
use espalier_interface::{DType, ErrorCode, Options, PluginError, Quantizer, Result};
use serde_json::Value as Json;

use crate::grouping::Affine;
use crate::pack::pack;
use crate::problem::Problem;
use crate::quantizer::{HqqQuantizer, Zeros};
use crate::saved;
use crate::solve::{Scratch, solve};
use crate::start::{StartZero, start};

/// Numbers that the workspace may lose to alignment.
const ALIGNMENT: usize = 1;

impl Quantizer for HqqQuantizer {
    fn format(&self, shape: [u64; 2]) -> Result<Format> {
        HqqQuantizer::format(self, shape)
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
