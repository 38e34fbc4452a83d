//! A model with its adapter -> the programs of a run: one that trains or evaluates, one that
//! generates.

use espalier_compile::params::Param;
use espalier_compile::program::{self, AdaptedModel, HEAD_CHUNK_BYTES, Limits, NoProgram, Program};
use espalier_compile::recompute::Recompute;
use espalier_interface::DeviceInfo;

use super::demand::{Demand, Purpose};

/// The programs of a run.
pub(super) struct Programs {
    /// The program of the run's purpose.
    pub main: Program,
    /// The program that generates beside it, if any.
    pub generator: Option<Program>,
}

impl Programs {
    /// Compiles the programs that `demand` asks for. `params` gives every adapter param its unit,
    /// `device` the size of the head's chunks.
    ///
    /// # Errors
    /// As [`program::compile`].
    pub fn compile(
        adapted: &AdaptedModel<'_>,
        params: &mut [Param],
        demand: Demand,
        recompute: Recompute,
        device: &DeviceInfo,
    ) -> Result<Self, NoProgram> {
        let mut compile = |limits: Limits| program::compile(adapted, params, limits);
        let head_chunk_bytes = device.head_chunk_bytes.unwrap_or(HEAD_CHUNK_BYTES);
        let generating = demand.generation.map(|generation| Limits {
            max_tokens: generation.max_tokens,
            max_sequences: generation.cache.slots,
            recompute: Recompute::None,
            cache: Some(generation.cache),
            head_chunk_bytes,
        });
        if let (Purpose::Generate, Some(limits)) = (demand.purpose, generating) {
            return Ok(Programs {
                main: compile(limits)?,
                generator: None,
            });
        }
        let limits = Limits {
            max_tokens: demand.limits.max_tokens,
            max_sequences: demand.limits.max_sequences,
            recompute,
            cache: None,
            head_chunk_bytes,
        };
        Ok(Programs {
            main: compile(limits)?,
            generator: generating.map(compile).transpose()?,
        })
    }
}
