//! `int4`: a weight -> the nearest codes.

use std::sync::Arc;

use espalier_interface::format::Format;
use espalier_interface::{Quantizer, Result, Services};

use crate::grid::GridSpec;
use crate::grouping::Grouping;
use crate::layout;
use crate::nearest::{Found, check_finite, round_to_nearest};
use crate::store::Encoded;

/// The quantizer, with checked options.
pub struct Int4Quantizer {
    /// How grids are chosen and stored.
    pub grid: GridSpec,
    /// Weights a group, at most.
    pub group_size: u64,
    /// The host's threads.
    pub services: Arc<dyn Services>,
}

impl Quantizer for Int4Quantizer {
    fn format(&self, shape: [u64; 2]) -> Result<Format> {
        let groups = Grouping::of(self.group_size, shape)?;
        Ok(layout::format("int4", self.grid, groups))
    }

    fn encode(
        &self,
        weight: &[f32],
        shape: [u64; 2],
        segments: &mut [&mut [u8]],
        workspace: &mut [u8],
    ) -> Result<()> {
        check_finite(weight)?;
        let groups = Grouping::of(self.group_size, shape)?;
        let services = self.services.as_ref();
        let (mut found, _) = Found::of(groups, workspace);
        round_to_nearest(self.grid, groups, weight, &mut found, services)?;
        let encoded = Encoded {
            codes: found.codes,
            scales: found.scales,
            zeros: found.zeros,
        };
        encoded.store(self.grid, groups, segments, services)
    }

    fn encode_workspace(&self, shape: [u64; 2]) -> Result<u64> {
        Ok(Found::bytes(Grouping::of(self.group_size, shape)?))
    }
}
