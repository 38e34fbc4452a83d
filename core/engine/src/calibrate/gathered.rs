//! Passes of a unit over rows -> the statistics of its sites' inputs.

use espalier_interface::DType;
use espalier_interface::calibration::{Statistic, StatisticNumbers, StatisticValues};
use espalier_interface::model::Unit;
use espalier_system::files::WeightsError;

use super::statistics_graph::{SharedInput, StatisticsGraph};
use crate::Error;
use crate::device_graph::DeviceGraph;
use crate::error::BackendCall;

/// The statistics of a unit's inputs.
pub struct Gathered<'a> {
    unit: &'a Unit,
    inputs: Vec<InputSums<'a>>,
    /// Tokens so far.
    pub tokens: u64,
}

/// Sums over the inputs so far.
struct InputSums<'a> {
    input: &'a SharedInput,
    /// `[M]`, where a statistic by channel is wanted.
    squares: Vec<f64>,
    largest: Vec<f64>,
    magnitudes: Vec<f64>,
    gram_f32: Vec<f32>,
    gram_f64: Vec<f64>,
    mean_square: Vec<f32>,
    absolute_maximum: Vec<f32>,
    mean_absolute: Vec<f32>,
}

impl<'a> Gathered<'a> {
    /// No row yet.
    pub fn new(statistics: &'a StatisticsGraph, unit: &'a Unit) -> Self {
        let inputs = statistics.inputs.iter().map(|input| InputSums {
            input,
            squares: Vec::new(),
            largest: Vec::new(),
            magnitudes: Vec::new(),
            gram_f32: Vec::new(),
            gram_f64: Vec::new(),
            mean_square: Vec::new(),
            absolute_maximum: Vec::new(),
            mean_absolute: Vec::new(),
        });
        Gathered {
            unit,
            inputs: inputs.collect(),
            tokens: 0,
        }
    }

    /// Sets the device's sums to 0.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn begin(&mut self, device: &DeviceGraph<'_>) -> Result<(), Error> {
        self.inputs.iter().try_for_each(|one| one.clear(device))
    }

    /// Adds a row of `tokens` tokens, which the device has computed.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn add(&mut self, device: &DeviceGraph<'_>, tokens: u64) -> Result<(), Error> {
        self.tokens += tokens;
        let mut inputs = self.inputs.iter_mut();
        inputs.try_for_each(|one| one.add(device, tokens))
    }

    /// The statistics of all rows.
    ///
    /// # Errors
    /// Inputs that are not finite; errors of the device.
    pub fn finish(&mut self, device: &DeviceGraph<'_>) -> Result<(), Error> {
        let tokens = self.tokens.max(1) as f64;
        for one in &mut self.inputs {
            one.finish(device, tokens)?;
            if !one.is_finite() {
                return Err(Error::Weights(WeightsError {
                    path: self.unit.name.clone().into(),
                    message: "calibration rows give its weights inputs that are not finite: \
                              the base is damaged, or its activations exceed f32"
                        .to_owned(),
                }));
            }
        }
        Ok(())
    }

    /// The numbers of these statistics for the weight `param`, in their order.
    pub fn of(&self, param: usize, wanted: &[Statistic]) -> Vec<StatisticValues<'_>> {
        let mut inputs = self.inputs.iter();
        let Some(found) = inputs.find(|one| one.input.params.contains(&param)) else {
            return Vec::new();
        };
        let values = wanted.iter().map(|&statistic| StatisticValues {
            statistic,
            numbers: match statistic {
                Statistic::MeanSquare => StatisticNumbers::F32(&found.mean_square),
                Statistic::AbsoluteMaximum => StatisticNumbers::F32(&found.absolute_maximum),
                Statistic::MeanAbsolute => StatisticNumbers::F32(&found.mean_absolute),
                Statistic::Gram { dtype: DType::F64 } => StatisticNumbers::F64(&found.gram_f64),
                Statistic::Gram { .. } => StatisticNumbers::F32(&found.gram_f32),
            },
        });
        values.collect()
    }
}

impl InputSums<'_> {
    fn wants(&self, statistic: Statistic) -> bool {
        self.input.statistics.contains(&statistic)
    }

    /// Whether a statistic by channel is wanted.
    fn wants_channels(&self) -> bool {
        let mut wanted = self.input.statistics.iter();
        wanted.any(|one| !matches!(one, Statistic::Gram { .. }))
    }

    fn sums_in_f64(&self) -> bool {
        self.wants(Statistic::Gram { dtype: DType::F64 })
    }

    fn clear(&self, device: &DeviceGraph<'_>) -> Result<(), Error> {
        let Some(gram) = self.input.gram else {
            return Ok(());
        };
        let elements = self.input.channels * self.input.channels;
        let zeros = vec![0; (elements * DType::F32.bytes()) as usize];
        device.write(gram, &zeros).during("upload")
    }

    fn add(&mut self, device: &DeviceGraph<'_>, tokens: u64) -> Result<(), Error> {
        if self.wants_channels() {
            let channels = self.input.channels as usize;
            self.squares.resize(channels, 0.0);
            self.largest.resize(channels, 0.0);
            self.magnitudes.resize(channels, 0.0);
            let values = device.read(self.input.value, tokens).during("download")?;
            for row in values.chunks_exact(channels) {
                let sums = self.squares.iter_mut().zip(&mut self.largest);
                let sums = sums.zip(&mut self.magnitudes);
                for (x, ((squares, largest), magnitudes)) in row.iter().zip(sums) {
                    *squares += x * x;
                    *magnitudes += x.abs();
                    // A NaN stays: it is told of when the sums are finished.
                    *largest = if x.abs() <= *largest {
                        *largest
                    } else {
                        x.abs()
                    };
                }
            }
        }
        if self.sums_in_f64() {
            let sums = self.read_gram(device, tokens)?;
            self.gram_f64.resize(sums.len(), 0.0);
            let all = self.gram_f64.iter_mut().zip(sums);
            all.for_each(|(all, row)| *all += row);
            self.clear(device)?;
        }
        Ok(())
    }

    fn finish(&mut self, device: &DeviceGraph<'_>, tokens: f64) -> Result<(), Error> {
        let narrow = |x: &f64| *x as f32;
        if self.wants(Statistic::Gram { dtype: DType::F32 }) {
            self.gram_f32 = if self.sums_in_f64() {
                self.gram_f64.iter().map(narrow).collect()
            } else {
                self.read_gram(device, 1)?.iter().map(narrow).collect()
            };
        }
        let mean = |x: &f64| (x / tokens) as f32;
        self.mean_square = self.squares.iter().map(mean).collect();
        self.mean_absolute = self.magnitudes.iter().map(mean).collect();
        self.absolute_maximum = self.largest.iter().map(narrow).collect();
        Ok(())
    }

    fn read_gram(&self, device: &DeviceGraph<'_>, tokens: u64) -> Result<Vec<f64>, Error> {
        let gram = self.input.gram.expect("a wanted Gram matrix is computed");
        device.read(gram, tokens).during("download")
    }

    fn is_finite(&self) -> bool {
        let by_channel = [
            &self.mean_square,
            &self.absolute_maximum,
            &self.mean_absolute,
        ];
        let f32s = by_channel.into_iter().chain([&self.gram_f32]);
        f32s.flatten().all(|x| x.is_finite()) && self.gram_f64.iter().all(|x| x.is_finite())
    }
}
