//! Calibration: what a quantizer wants to know of a weight's inputs before it packs the weight.
//!
//! Legend: a weight is `[N, M]`; `x` one input of it, `[M]`; `T` the inputs over which the host
//! takes statistics.

use serde::{Deserialize, Serialize};

use crate::DType;

/// A statistic of the inputs of a weight `[N, M]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// The mean of `x_c^2` for each channel, `[M]` f32.
    MeanSquare,
    /// The largest `|x_c|` for each channel, `[M]` f32.
    AbsoluteMaximum,
    /// The mean of `|x_c|` for each channel, `[M]` f32.
    MeanAbsolute,
    /// The sum of `x x^T` over all `T` inputs, `[M, M]` row major and symmetric.
    Gram {
        /// `f32` or `f64`. The host adds up in f32 within a row of tokens; f64 adds up the rows in
        /// f64.
        dtype: DType,
    },
}

impl Statistic {
    /// Its dtype.
    pub fn dtype(self) -> DType {
        match self {
            Statistic::MeanSquare | Statistic::AbsoluteMaximum | Statistic::MeanAbsolute => {
                DType::F32
            }
            Statistic::Gram { dtype } => dtype,
        }
    }

    /// Its elements for inputs of `channels` numbers; `u64::MAX` where that overflows.
    pub fn elements(self, channels: u64) -> u64 {
        match self {
            Statistic::MeanSquare | Statistic::AbsoluteMaximum | Statistic::MeanAbsolute => {
                channels
            }
            Statistic::Gram { .. } => channels.saturating_mul(channels),
        }
    }
}

/// From which layers the inputs come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputsFrom {
    /// All weights before are dense: the inputs are those of the original model.
    #[default]
    Dense,
    /// The layers before are packed already, so that a weight can make up for their errors. The
    /// weights of its own layer are dense still.
    PackedLayers,
}

/// What a quantizer wants for a weight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calibration {
    /// The statistics, each once.
    pub statistics: Vec<Statistic>,
    /// The inputs that they are of.
    #[serde(default)]
    pub inputs: InputsFrom,
}

/// The numbers of a statistic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StatisticNumbers<'a> {
    /// Of a statistic in f32.
    F32(&'a [f32]),
    /// Of a statistic in f64.
    F64(&'a [f64]),
}

/// A statistic with its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StatisticValues<'a> {
    /// Which one.
    pub statistic: Statistic,
    /// Its numbers, in the dtype and number that it states; all are finite.
    pub numbers: StatisticNumbers<'a>,
}

/// What [`Quantizer::encode_calibrated`](crate::Quantizer::encode_calibrated) is given.
pub struct CalibratedCall<'a, 'b> {
    /// The site's name, such as `model.layers.0.self_attn.q_proj`.
    pub site: &'a str,
    /// The weight, `[N, M]` row major.
    pub weight: &'a [f32],
    /// `[N, M]`.
    pub shape: [u64; 2],
    /// The number `T` of inputs, at least 1.
    pub tokens: u64,
    /// The statistics of its [`Calibration`], in that order.
    pub statistics: &'a [StatisticValues<'a>],
    /// The segments to fill, as [`Quantizer::format`](crate::Quantizer::format) says.
    pub segments: &'a mut [&'b mut [u8]],
    /// The bytes that
    /// [`Quantizer::calibrated_workspace`](crate::Quantizer::calibrated_workspace) asked for.
    pub workspace: &'a mut [u8],
}

impl<'a> CalibratedCall<'a, '_> {
    /// The numbers of the Gram matrix in f64, `[M, M]`, where the quantizer asked for it.
    pub fn gram_f64(&self) -> Option<&'a [f64]> {
        self.statistics.iter().find_map(|one| match *one {
            StatisticValues {
                statistic: Statistic::Gram { .. },
                numbers: StatisticNumbers::F64(numbers),
            } => Some(numbers),
            _ => None,
        })
    }

    /// The numbers of the Gram matrix in f32, `[M, M]`, where the quantizer asked for it.
    pub fn gram_f32(&self) -> Option<&'a [f32]> {
        let gram = |statistic| matches!(statistic, Statistic::Gram { .. });
        self.f32_of(gram)
    }

    /// The numbers of a statistic by channel, `[M]`, where the quantizer asked for it.
    pub fn channels(&self, statistic: Statistic) -> Option<&'a [f32]> {
        self.f32_of(|found| found == statistic)
    }

    fn f32_of(&self, is: impl Fn(Statistic) -> bool) -> Option<&'a [f32]> {
        self.statistics.iter().find_map(|one| match one.numbers {
            StatisticNumbers::F32(numbers) if is(one.statistic) => Some(numbers),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calibration_crosses_as_json() {
        let calibration = Calibration {
            statistics: vec![Statistic::MeanSquare, Statistic::Gram { dtype: DType::F64 }],
            inputs: InputsFrom::PackedLayers,
        };
        let text = serde_json::to_string(&calibration).expect("plain data");
        assert_eq!(
            text,
            r#"{"statistics":["mean_square",{"gram":{"dtype":"f64"}}],"inputs":"packed_layers"}"#
        );
        let read: Calibration = serde_json::from_str(&text).expect("its own text");
        assert_eq!(read, calibration);
        let least: Calibration = serde_json::from_str(r#"{"statistics":[]}"#).expect("defaults");
        assert_eq!(least, Calibration::default());
    }
}
