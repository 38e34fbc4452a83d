//! A small layer of the golden data: a weight, and statistics of its inputs.

use espalier_interface::Quantizer;
use espalier_interface::calibration::{
    CalibratedCall, Statistic, StatisticNumbers, StatisticValues,
};
use espalier_tests::Golden;

/// A weight `[N, M]` with statistics of its inputs, among them the Gram matrix `[M, M]`.
pub struct Layer {
    pub weight: Vec<f32>,
    pub gram: Vec<f32>,
    /// The mean of `|x_c|`, `[M]`.
    mean_absolute: Vec<f32>,
    pub shape: [u64; 2],
    tokens: u64,
}

impl Layer {
    /// The layer of that name of `gptq/layers`.
    pub fn of(golden: &Golden, name: &str) -> Self {
        let inputs = golden.rows(&format!("{name}|inputs"));
        let cols = inputs[0].len();
        let mut gram = vec![0.0f32; cols * cols];
        let mut mean_absolute = vec![0.0; cols];
        for row in &inputs {
            for (mean, x) in mean_absolute.iter_mut().zip(row) {
                *mean += x.abs() as f32 / inputs.len() as f32;
            }
            for (a, x) in row.iter().enumerate() {
                for (b, y) in row.iter().enumerate() {
                    // Whole numbers below 2^24: exact.
                    gram[a * cols + b] += (x * y) as f32;
                }
            }
        }
        let weight = golden.numbers(&format!("{name}|weight"));
        Layer {
            weight: weight.iter().map(|&x| x as f32).collect(),
            gram,
            mean_absolute,
            shape: [(weight.len() / cols) as u64, cols as u64],
            tokens: inputs.len() as u64,
        }
    }

    /// The weight that `quantizer` makes of it, `[N, M]`.
    pub fn packed_by(&self, quantizer: &dyn Quantizer) -> (Vec<Vec<u8>>, Vec<f32>) {
        let format = quantizer.format(self.shape).expect("it fits");
        let segments = format.segments.iter();
        let mut memory: Vec<Vec<u8>> = segments
            .map(|one| vec![0xa5; one.bytes() as usize])
            .collect();
        let mut segments: Vec<&mut [u8]> = memory.iter_mut().map(Vec::as_mut_slice).collect();
        let bytes = quantizer.calibrated_workspace(self.shape).expect("bytes");
        let wanted = quantizer
            .calibration("site", self.shape)
            .expect("an answer");
        let wanted = wanted.expect("it is calibrated").statistics;
        let statistics = wanted.into_iter().map(|statistic| StatisticValues {
            statistic,
            numbers: StatisticNumbers::F32(match statistic {
                Statistic::MeanAbsolute => &self.mean_absolute,
                _ => &self.gram,
            }),
        });
        let statistics: Vec<_> = statistics.collect();
        let call = CalibratedCall {
            site: "site",
            weight: &self.weight,
            shape: self.shape,
            tokens: self.tokens,
            statistics: &statistics,
            segments: &mut segments,
            workspace: &mut vec![0x5a; bytes as usize],
        };
        quantizer.encode_calibrated(call).expect("it is packed");
        let mut decoded = vec![0.0; self.weight.len()];
        let segments: Vec<&[u8]> = memory.iter().map(Vec::as_slice).collect();
        let [rows, cols] = self.shape;
        let done = quantizer.decode(&segments, self.shape, 0..rows, 0..cols, &mut decoded);
        done.expect("decoded");
        (memory, decoded)
    }

    /// `|X (W - Q)^T|^2`.
    pub fn error(&self, decoded: &[f32]) -> f64 {
        let cols = self.shape[1] as usize;
        let rows = self.weight.chunks(cols).zip(decoded.chunks(cols));
        rows.map(|(weight, decoded)| {
            let pairs = weight.iter().zip(decoded);
            let errors: Vec<f64> = pairs.map(|(w, q)| f64::from(*w) - f64::from(*q)).collect();
            let by_row = self.gram.chunks(cols).zip(&errors);
            by_row
                .map(|(gram, error)| {
                    let sum: f64 = gram
                        .iter()
                        .zip(&errors)
                        .map(|(g, e)| f64::from(*g) * e)
                        .sum();
                    sum * error
                })
                .sum::<f64>()
        })
        .sum()
    }
}
