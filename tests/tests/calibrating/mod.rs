//! A quantizer that records the statistics that the host gives it, a model whose linears are
//! calibrated, and small layers.

mod bench;
mod layer;

use std::collections::BTreeMap;
use std::sync::Mutex;

use espalier_interface::calibration::{
    CalibratedCall, Calibration, InputsFrom, Statistic, StatisticNumbers,
};
use espalier_interface::format::Format;
use espalier_interface::{DType, PluginError, Quantizer};

pub use bench::Bench;
pub use layer::Layer;

/// Tokens and statistics by site: mean squares, largest magnitudes, the Gram matrix in f32 and f64,
/// and mean magnitudes.
pub type Seen = BTreeMap<String, (u64, Vec<Vec<f64>>)>;

/// A quantizer that records the statistics it is given, and packs as `int4`.
pub struct Recorder {
    int4: Box<dyn Quantizer>,
    inputs: InputsFrom,
    seen: Mutex<Seen>,
}

impl Recorder {
    /// One that has seen nothing, and asks for inputs of that kind.
    pub fn new(int4: Box<dyn Quantizer>, inputs: InputsFrom) -> Self {
        Recorder {
            int4,
            inputs,
            seen: Mutex::default(),
        }
    }

    /// What it was given so far.
    pub fn seen(&self) -> Seen {
        std::mem::take(&mut *self.seen.lock().expect("no panic"))
    }
}

impl Quantizer for Recorder {
    fn format(&self, shape: [u64; 2]) -> Result<Format, PluginError> {
        self.int4.format(shape)
    }

    fn encode(
        &self,
        weight: &[f32],
        shape: [u64; 2],
        segments: &mut [&mut [u8]],
        workspace: &mut [u8],
    ) -> Result<(), PluginError> {
        self.int4.encode(weight, shape, segments, workspace)
    }

    fn calibration(&self, _: &str, _: [u64; 2]) -> Result<Option<Calibration>, PluginError> {
        let grams = [DType::F32, DType::F64].map(|dtype| Statistic::Gram { dtype });
        let by_channel = [Statistic::MeanSquare, Statistic::AbsoluteMaximum];
        Ok(Some(Calibration {
            statistics: by_channel
                .into_iter()
                .chain(grams)
                .chain([Statistic::MeanAbsolute])
                .collect(),
            inputs: self.inputs,
        }))
    }

    fn calibrated_workspace(&self, shape: [u64; 2]) -> Result<u64, PluginError> {
        self.int4.encode_workspace(shape)
    }

    fn encode_calibrated(&self, call: CalibratedCall<'_, '_>) -> Result<(), PluginError> {
        let numbers = call.statistics.iter().map(|one| match one.numbers {
            StatisticNumbers::F32(numbers) => numbers.iter().map(|&x| f64::from(x)).collect(),
            StatisticNumbers::F64(numbers) => numbers.to_vec(),
        });
        let seen = (call.tokens, numbers.collect());
        let mut all = self.seen.lock().expect("no panic");
        all.insert(call.site.to_owned(), seen);
        self.encode(call.weight, call.shape, call.segments, call.workspace)
    }
}
