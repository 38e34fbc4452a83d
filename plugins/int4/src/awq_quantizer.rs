//! The options of `awq` -> how it stores a weight.

use espalier_interface::format::Format;
use espalier_interface::{PluginError, Result};

use crate::awq::Awq;
use crate::files::Files;
use crate::grouping::Grouping;
use crate::layout;
use crate::nearest::Found;
use crate::number::Number;
use crate::quantizer::Int4Quantizer;
use crate::store::Encoded;

/// The name of the component.
pub const NAME: &str = "awq";

/// The quantizer, with checked options.
pub struct AwqQuantizer {
    /// The format without factors.
    pub nearest: Int4Quantizer,
    /// How a weight with inputs is coded.
    pub awq: Awq,
    /// Whose files are asked for, of those that have no place for factors.
    pub others_files: Option<Files>,
}

impl AwqQuantizer {
    /// How a weight is stored: as by `int4`, and a last segment of factors.
    ///
    /// # Errors
    /// `INVALID` where groups do not divide its rows.
    pub fn format(&self, shape: [u64; 2]) -> Result<Format> {
        let groups = Grouping::of(self.nearest.group_size, shape)?;
        let format = layout::format(NAME, self.nearest.grid, groups);
        Ok(layout::with_factors(format))
    }

    /// Fills the segments with what was found.
    ///
    /// # Errors
    /// `INVALID` for other segments, and for a scale that is too large for its dtype.
    pub fn store(
        &self,
        groups: Grouping,
        found: &Found<'_>,
        factors: &[f32],
        segments: &mut [&mut [u8]],
    ) -> Result<()> {
        let Some((last, segments)) = segments.split_last_mut() else {
            return Err(PluginError::invalid("no segments, expected 3 or 4"));
        };
        let services = self.nearest.services.as_ref();
        Encoded::from(found).store(self.nearest.grid, groups, segments, services)?;
        Number::F32.store(factors, last);
        Ok(())
    }
}
