//! The options of `int4` -> how it stores a weight.

use std::sync::Arc;

use espalier_interface::format::Format;
use espalier_interface::{Result, Services};

use crate::files::Files;
use crate::grid::GridSpec;
use crate::grouping::Grouping;
use crate::layout;

/// The quantizer, with checked options.
pub struct Int4Quantizer {
    /// How grids are chosen and stored.
    pub grid: GridSpec,
    /// Weights a group, at most.
    pub group_size: u64,
    /// Whose files weights are written to.
    pub files: Files,
    /// The host's threads.
    pub services: Arc<dyn Services>,
}

impl Int4Quantizer {
    /// How a weight of `shape`, `[out, in]`, is stored.
    ///
    /// # Errors
    /// `INVALID` where groups do not divide its rows.
    pub fn format(&self, shape: [u64; 2]) -> Result<Format> {
        let groups = Grouping::of(self.group_size, shape)?;
        Ok(layout::format("int4", self.grid, groups))
    }
}
