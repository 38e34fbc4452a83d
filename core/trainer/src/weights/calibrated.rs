//! Packed params of a plan -> those with statistics of their inputs, encoded or taken from the
//! cache before loading.

use std::sync::Arc;

use espalier_compile::params::Param;
use espalier_compile::splice::{self, weight_of};
use espalier_engine::device_graph::GraphKernels;
use espalier_engine::executor::PreparedRun;
use espalier_engine::load::{self, CalibratedWeights, KeptWeights, SegmentSource, WeightCache};
use espalier_interface::WeightLayout;

use super::Loading;
use crate::Error;
use crate::calibration::{Calibrating, TrainingRows, WeightToPack};

/// Weights that were packed before loading begins.
#[derive(Clone, Copy)]
pub(super) struct PackedBefore<'a> {
    /// With statistics of their inputs.
    pub calibrated: Option<&'a CalibratedWeights>,
    /// The user's cache of packed weights.
    pub cache: Option<&'a WeightCache>,
}

impl<'a> PackedBefore<'a> {
    pub fn of(calibrated: Option<&'a CalibratedWeights>, cache: Option<&'a WeightCache>) -> Self {
        PackedBefore { calibrated, cache }
    }
}

impl Loading<'_> {
    /// The `wanted` weights that are packed with statistics of their inputs, where there are any.
    pub(super) fn calibrated(
        &self,
        run: &PreparedRun,
        cache: Option<&WeightCache>,
        wanted: &dyn Fn(usize, &Param) -> bool,
    ) -> Result<Option<CalibratedWeights>, Error> {
        let plan = &run.plan;
        let sites = splice::sites(&plan.model);
        let mut weights = Vec::new();
        for site in &sites {
            let Some(param) = weight_of(&plan.model, site).filter(|_| site.tied_to.is_none())
            else {
                continue;
            };
            let WeightLayout::Packed(format) = &plan.params[param].layout else {
                continue;
            };
            let packed = load::packing(&plan.quantizers, &plan.saved, param);
            if let Some(SegmentSource::Encode(quantizer)) = packed {
                weights.push(WeightToPack {
                    site,
                    param,
                    format,
                    quantizer,
                });
            }
        }
        let is_wanted =
            |weight: &WeightToPack<'_>| wanted(weight.param, &plan.params[weight.param]);
        let is_kept = |weight: &WeightToPack<'_>| {
            let holds =
                |kept: &KeptWeights| kept.holds(&plan.params[weight.param].name, weight.format);
            self.inspector.is_none() && self.kept.is_some_and(holds)
        };
        if !weights.iter().any(is_wanted) || weights.iter().all(is_kept) {
            return Ok(None);
        }
        let calibrating = Calibrating {
            config: self.config,
            directory: self.model,
            model: &plan.model,
            components: self.components,
            device: &plan.device_info,
            cache,
            rows: match self.training_rows {
                Some(rows) => TrainingRows::Read(rows),
                None => TrainingRows::None,
            },
            observer: self.observer,
            stop: self.stop,
        };
        calibrating.run(&weights, || {
            Ok(GraphKernels::new(Arc::clone(&run.device), plan.ops.clone()))
        })
    }
}
