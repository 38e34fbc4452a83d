//! `int4`: a weight -> the nearest codes, and their files.

use espalier_interface::format::Format;
use espalier_interface::saved_form::{SavedDescription, SavedForm, SavedModel};
use espalier_interface::{DType, Options, Quantizer, Result};
use serde_json::Value as Json;

use crate::grouping::Grouping;
use crate::nearest::{Found, check_finite, round_to_nearest};
use crate::quantizer::Int4Quantizer;
use crate::saved;
use crate::store::Encoded;

impl Quantizer for Int4Quantizer {
    fn format(&self, shape: [u64; 2]) -> Result<Format> {
        Int4Quantizer::format(self, shape)
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
        Encoded::from(&found).store(self.grid, groups, segments, services)
    }

    fn encode_workspace(&self, shape: [u64; 2]) -> Result<u64> {
        Ok(Found::bytes(Grouping::of(self.group_size, shape)?))
    }

    fn saved_form(&self, shape: [u64; 2], _dtype: DType) -> Result<SavedForm> {
        saved::form(self, shape)
    }

    fn quantization_config(&self, model: &SavedModel) -> Result<Json> {
        saved::config(self, model)
    }

    fn options_from_saved(&self, saved: &SavedDescription) -> Result<Options> {
        saved::options(saved)
    }
}
