//! `awq`: a weight and statistics of its inputs -> codes in the format of `int4` and a factor for
//! each column, and their files.

use espalier_interface::calibration::{CalibratedCall, Calibration, InputsFrom, Statistic};
use espalier_interface::format::Format;
use espalier_interface::saved_form::{SavedDescription, SavedForm, SavedModel};
use espalier_interface::{DType, Options, PluginError, Quantizer, Result};
use serde_json::Value as Json;

use crate::awq::Activations;
use crate::awq_quantizer::AwqQuantizer;
use crate::awq_saved;
use crate::grouping::Grouping;
use crate::nearest::{Found, check_finite, round_to_nearest};

impl Quantizer for AwqQuantizer {
    fn format(&self, shape: [u64; 2]) -> Result<Format> {
        AwqQuantizer::format(self, shape)
    }

    fn encode(
        &self,
        weight: &[f32],
        shape: [u64; 2],
        segments: &mut [&mut [u8]],
        workspace: &mut [u8],
    ) -> Result<()> {
        check_finite(weight)?;
        let groups = Grouping::of(self.nearest.group_size, shape)?;
        let (mut found, _) = Found::of(groups, workspace);
        let (spec, services) = (self.nearest.grid, self.nearest.services.as_ref());
        round_to_nearest(spec, groups, weight, &mut found, services)?;
        self.store(groups, &found, &vec![1.0; groups.cols], segments)
    }

    fn encode_workspace(&self, shape: [u64; 2]) -> Result<u64> {
        self.nearest.encode_workspace(shape)
    }

    fn saved_form(&self, shape: [u64; 2], _dtype: DType) -> Result<SavedForm> {
        awq_saved::form(self, shape)
    }

    fn quantization_config(&self, model: &SavedModel) -> Result<Json> {
        awq_saved::config(self, model)
    }

    fn options_from_saved(&self, saved: &SavedDescription) -> Result<Options> {
        awq_saved::options(saved)
    }

    fn calibration(&self, _site: &str, shape: [u64; 2]) -> Result<Option<Calibration>> {
        Grouping::of(self.nearest.group_size, shape)?;
        Ok(Some(Calibration {
            statistics: vec![
                Statistic::MeanAbsolute,
                Statistic::Gram { dtype: DType::F32 },
            ],
            inputs: InputsFrom::Dense,
        }))
    }

    fn calibrated_workspace(&self, shape: [u64; 2]) -> Result<u64> {
        self.nearest.encode_workspace(shape)
    }

    fn encode_calibrated(&self, call: CalibratedCall<'_, '_>) -> Result<()> {
        check_finite(call.weight)?;
        let groups = Grouping::of(self.nearest.group_size, call.shape)?;
        let numbers = call.channels(Statistic::MeanAbsolute);
        let (Some(mean_absolute), Some(gram)) = (numbers, call.gram_f32()) else {
            return Err(PluginError::invalid(format!(
                "`{}` comes without the mean magnitudes or the Gram matrix of its inputs",
                call.site
            )));
        };
        let inputs = Activations {
            mean_absolute,
            gram,
        };
        let (mut found, _) = Found::of(groups, call.workspace);
        let mut factors = vec![1.0; groups.cols];
        let services = self.nearest.services.as_ref();
        let out = (&mut found, factors.as_mut_slice());
        self.awq
            .encode(groups, call.weight, inputs, out, services)?;
        self.store(groups, &found, &factors, call.segments)
    }
}
