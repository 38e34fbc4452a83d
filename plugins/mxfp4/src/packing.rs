//! What the host asks of `mxfp4` and `nvfp4`.

use espalier_interface::format::Format;
use espalier_interface::saved_form::{SavedDescription, SavedForm, SavedModel};
use espalier_interface::{DType, Options, Quantizer, Result};
use serde_json::Value as Json;

use crate::quantizer::{ScaledFloat, Scales};
use crate::{encode, saved};

impl Quantizer for ScaledFloat {
    fn format(&self, shape: [u64; 2]) -> Result<Format> {
        ScaledFloat::format(self, shape)
    }

    fn encode(
        &self,
        weight: &[f32],
        _shape: [u64; 2],
        segments: &mut [&mut [u8]],
        _workspace: &mut [u8],
    ) -> Result<()> {
        let services = self.services.as_ref();
        match (self.scales, segments) {
            (Scales::E8M0, [codes, scales]) => encode::mxfp4(weight, codes, scales, services),
            (Scales::E4M3, [codes, scales, global]) => {
                encode::nvfp4(weight, (codes, scales, global), services)
            }
            (_, segments) => panic!("{} segments are not of this format", segments.len()),
        }
    }

    fn saved_form(&self, shape: [u64; 2], _dtype: DType) -> Result<SavedForm> {
        saved::form(self, shape)
    }

    fn quantization_config(&self, model: &SavedModel) -> Result<Json> {
        Ok(saved::config(self, model))
    }

    fn options_from_saved(&self, saved: &SavedDescription) -> Result<Options> {
        saved::options(self, saved)
    }
}
