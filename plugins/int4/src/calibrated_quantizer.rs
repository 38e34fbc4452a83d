//! `gptq` and `int4-clip`: a weight and the Gram matrix of its inputs -> codes in the format of
//! `int4`.

use espalier_interface::calibration::{CalibratedCall, Calibration, InputsFrom, Statistic};
use espalier_interface::format::Format;
use espalier_interface::saved_form::{SavedDescription, SavedForm, SavedModel};
use espalier_interface::{DType, Options, PluginError, Quantizer, Result};
use serde_json::Value as Json;

use crate::clip::clip;
use crate::gptq::Gptq;
use crate::grouping::Grouping;
use crate::nearest::{Found, check_finite};
use crate::quantizer::Int4Quantizer;
use crate::store::Encoded;

/// The quantizer, with checked options.
pub struct CalibratedQuantizer {
    /// Name of the component.
    pub name: &'static str,
    /// The same format, rounded to nearest: for weights without inputs.
    pub nearest: Int4Quantizer,
    /// How a weight with inputs is coded.
    pub method: Method,
}

/// How a weight is coded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// Column by column, each making up for the errors of those before it.
    Gptq(Gptq),
    /// To the nearest codes, with clipped groups.
    Clip,
}

impl CalibratedQuantizer {
    fn groups(&self, shape: [u64; 2]) -> Result<Grouping> {
        Grouping::of(self.nearest.group_size, shape)
    }
}

impl Quantizer for CalibratedQuantizer {
    fn format(&self, shape: [u64; 2]) -> Result<Format> {
        Ok(Format {
            quantizer: self.name.to_owned(),
            ..self.nearest.format(shape)?
        })
    }

    fn encode(
        &self,
        weight: &[f32],
        shape: [u64; 2],
        segments: &mut [&mut [u8]],
        workspace: &mut [u8],
    ) -> Result<()> {
        self.nearest.encode(weight, shape, segments, workspace)
    }

    fn encode_workspace(&self, shape: [u64; 2]) -> Result<u64> {
        self.nearest.encode_workspace(shape)
    }

    fn saved_form(&self, shape: [u64; 2], dtype: DType) -> Result<SavedForm> {
        self.nearest.saved_form(shape, dtype)
    }

    fn quantization_config(&self, model: &SavedModel) -> Result<Json> {
        self.nearest.quantization_config(model)
    }

    fn options_from_saved(&self, saved: &SavedDescription) -> Result<Options> {
        self.nearest.options_from_saved(saved)
    }

    fn calibration(&self, _site: &str, shape: [u64; 2]) -> Result<Option<Calibration>> {
        self.groups(shape)?;
        Ok(Some(Calibration {
            statistics: vec![Statistic::Gram { dtype: DType::F32 }],
            inputs: match self.method {
                Method::Gptq(_) => InputsFrom::PackedLayers,
                Method::Clip => InputsFrom::Dense,
            },
        }))
    }

    fn calibrated_workspace(&self, shape: [u64; 2]) -> Result<u64> {
        let groups = self.groups(shape)?;
        let more = match self.method {
            Method::Gptq(_) => Gptq::workspace(groups),
            Method::Clip => 0,
        };
        Ok(Found::bytes(groups).saturating_add(more))
    }

    fn encode_calibrated(&self, call: CalibratedCall<'_, '_>) -> Result<()> {
        check_finite(call.weight)?;
        let groups = self.groups(call.shape)?;
        let gram = call.gram_f32().ok_or_else(|| {
            PluginError::invalid(format!("`{}` comes without its Gram matrix", call.site))
        })?;
        let services = self.nearest.services.as_ref();
        let (mut found, rest) = Found::of(groups, call.workspace);
        let weight = call.weight;
        match self.method {
            Method::Gptq(gptq) => {
                gptq.encode(groups, weight, gram, &mut found, rest, services)?;
            }
            Method::Clip => {
                clip(
                    self.nearest.grid,
                    groups,
                    (weight, gram),
                    &mut found,
                    services,
                )?;
            }
        }
        Encoded::from(&found).store(self.nearest.grid, groups, call.segments, services)
    }
}
