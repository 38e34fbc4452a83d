//! The checks of quantizers that pack with statistics of a weight's inputs.
//!
//! Legend: `X` `[T, M]`, inputs of a weight `W` `[N, M]`; `Q` what its codes stand for.

use espalier_interface::calibration::{
    CalibratedCall, Calibration, Statistic, StatisticNumbers, StatisticValues,
};
use espalier_interface::format::Format;
use espalier_interface::{DType, PluginError, Quantizer};

use super::case::{Case, Encoded, difference, each};
use crate::checked::{Checked, Fault, ensure, refusal, within};
use crate::guarded::Guarded;
use crate::{Subject, Suite, Threads, weights};

/// Most channels that the checks give inputs for: a matrix of them is to be factored often.
const MOST_CHANNELS: u64 = 256;
/// Inputs of a weight.
const TOKENS: u64 = 96;
/// Largest error of the outputs, against that of `encode`: statistics may not make it worse.
const WORSE: f64 = 1.02;
/// Most bytes of workspace for each element of a weight and of a Gram matrix.
const MOST_BYTES: u64 = 64;

const SITE: &str = "model.layers.0.self_attn.q_proj";

pub fn check(subject: &Subject<'_, dyn Quantizer>, suite: &mut Suite) {
    suite.check(
        "calibrated.pure",
        "what is asked for is the same each time and of another instance, each statistic once and in f32 or f64",
        || each_calibrated(subject, |case, wanted| pure(subject, case, wanted)),
    );
    suite.check(
        "calibrated.bytes",
        "with statistics, too, every byte is written, none beside segments and workspace, whatever lay there",
        || each_calibrated(subject, bytes),
    );
    suite.check(
        "calibrated.threads",
        "with statistics, too, a weight gives the same bytes on 1, 2, 3 and 7 threads",
        || each_calibrated(subject, |case, wanted| threads(subject, case, wanted)),
    );
    suite.check(
        "calibrated.error",
        "the error of a weight's outputs is no larger with statistics than without",
        || each_calibrated(subject, error),
    );
    suite.check(
        "calibrated.inputs",
        "inputs that are all 0, or in one channel, give finite weights; a weight with a NaN is refused",
        || each_calibrated(subject, unusual),
    );
}

/// Calls `body` for the cases of few channels in which the quantizer wants statistics.
fn each_calibrated(
    subject: &Subject<'_, dyn Quantizer>,
    mut body: impl FnMut(&Case<'_>, &Calibration) -> Checked,
) -> Checked {
    let mut wants = false;
    each(subject, |case| {
        if case.shape[1] > MOST_CHANNELS {
            return Ok(());
        }
        match case.quantizer.calibration(SITE, case.shape)? {
            None => Ok(()),
            Some(wanted) => {
                wants = true;
                body(case, &wanted)
            }
        }
    })?;
    if wants {
        return Ok(());
    }
    Err(Fault::Skipped("it packs without statistics".to_owned()))
}

/// Inputs of a weight and all their statistics.
pub struct Inputs {
    mean_square: Vec<f32>,
    absolute_maximum: Vec<f32>,
    mean_absolute: Vec<f32>,
    gram: Vec<f64>,
    gram_f32: Vec<f32>,
}

impl Inputs {
    /// Inputs of `channels` channels of different sizes, which go together in part.
    pub fn ordinary(channels: u64) -> Self {
        let mut x = weights::gaussian([TOKENS, channels], 1.0, 41);
        let shared = weights::gaussian([TOKENS, 1], 1.0, 42);
        for (row, shared) in x.chunks_exact_mut(channels as usize).zip(shared) {
            for (channel, x) in row.iter_mut().enumerate() {
                *x = (*x + 0.7 * shared) * (0.1 + (channel * 5 % 7) as f32);
            }
        }
        Inputs::of(&x, channels as usize)
    }

    /// The statistics of `x`, `[T, M]`.
    fn of(x: &[f32], channels: usize) -> Self {
        let mut gram = vec![0.0; channels * channels];
        let mut absolute_maximum = vec![0.0f32; channels];
        let mut magnitudes = vec![0.0; channels];
        for row in x.chunks_exact(channels) {
            for (a, &x) in row.iter().enumerate() {
                absolute_maximum[a] = absolute_maximum[a].max(x.abs());
                magnitudes[a] += f64::from(x.abs());
                for (b, &y) in row.iter().enumerate() {
                    gram[a * channels + b] += f64::from(x) * f64::from(y);
                }
            }
        }
        let square = |channel: usize| gram[channel * channels + channel] / TOKENS as f64;
        Inputs {
            mean_square: (0..channels)
                .map(|channel| square(channel) as f32)
                .collect(),
            absolute_maximum,
            mean_absolute: magnitudes
                .iter()
                .map(|sum| (sum / TOKENS as f64) as f32)
                .collect(),
            gram_f32: gram.iter().map(|&x| x as f32).collect(),
            gram,
        }
    }

    fn values(&self, wanted: &Calibration) -> Vec<StatisticValues<'_>> {
        let statistics = wanted.statistics.iter();
        let values = statistics.map(|&statistic| StatisticValues {
            statistic,
            numbers: match statistic {
                Statistic::MeanSquare => StatisticNumbers::F32(&self.mean_square),
                Statistic::AbsoluteMaximum => StatisticNumbers::F32(&self.absolute_maximum),
                Statistic::MeanAbsolute => StatisticNumbers::F32(&self.mean_absolute),
                Statistic::Gram { dtype: DType::F64 } => StatisticNumbers::F64(&self.gram),
                Statistic::Gram { .. } => StatisticNumbers::F32(&self.gram_f32),
            },
        });
        values.collect()
    }

    /// `|X (W - Q)^T|^2`.
    fn error(&self, weight: &[f32], decoded: &[f32]) -> f64 {
        let channels = self.mean_square.len();
        let rows = weight.chunks_exact(channels);
        let rows = rows.zip(decoded.chunks_exact(channels));
        rows.map(|(weight, decoded)| {
            let pairs = weight.iter().zip(decoded);
            let errors: Vec<f64> = pairs.map(|(w, q)| f64::from(*w) - f64::from(*q)).collect();
            let by_row = self.gram.chunks_exact(channels).zip(&errors);
            by_row
                .map(|(gram, error)| {
                    let others = gram.iter().zip(&errors);
                    error * others.map(|(g, e)| g * e).sum::<f64>()
                })
                .sum::<f64>()
        })
        .sum()
    }
}

/// Encodes with the statistics that the quantizer wants. The outer error is a failed check, the
/// inner one the encoder's refusal.
pub fn encode(
    quantizer: &dyn Quantizer,
    format: &Format,
    (wanted, inputs): (&Calibration, &Inputs),
    weight: &[f32],
    fill: u8,
) -> Checked<Result<Encoded, PluginError>> {
    let [rows, cols] = format.shape;
    let workspace = quantizer.calibrated_workspace(format.shape)?;
    let most = MOST_BYTES * (rows * cols + cols * cols) + (1 << 20);
    ensure(workspace <= most, || {
        format!("calibrated_workspace wants {workspace} bytes, expected at most {most}")
    })?;
    let segments = format.segments.iter();
    let mut encoded = Encoded {
        segments: segments
            .map(|segment| Guarded::new(segment.bytes() as usize, fill))
            .collect(),
        workspace: Guarded::new(workspace as usize, fill),
    };
    let segments = encoded.segments.iter_mut().map(Guarded::bytes_mut);
    let mut segments: Vec<&mut [u8]> = segments.collect();
    let done = quantizer.encode_calibrated(CalibratedCall {
        site: SITE,
        weight,
        shape: format.shape,
        tokens: TOKENS,
        statistics: &inputs.values(wanted),
        segments: &mut segments,
        workspace: encoded.workspace.bytes_mut(),
    });
    Ok(done.map(|()| encoded))
}

/// The bytes that ordinary inputs give; none where the quantizer wants none, or too many channels.
pub fn outcome(
    quantizer: &dyn Quantizer,
    format: &Format,
    weight: &[f32],
) -> Checked<Option<Vec<Vec<u8>>>> {
    let channels = format.shape[1];
    let wanted = quantizer.calibration(SITE, format.shape)?;
    let Some(wanted) = wanted.filter(|_| channels <= MOST_CHANNELS) else {
        return Ok(None);
    };
    let inputs = Inputs::ordinary(channels);
    let encoded = encode(quantizer, format, (&wanted, &inputs), weight, 0)??;
    let segments = encoded.segments();
    Ok(Some(segments.iter().map(|run| run.to_vec()).collect()))
}

fn pure(subject: &Subject<'_, dyn Quantizer>, case: &Case<'_>, wanted: &Calibration) -> Checked {
    let other = subject.make(&case.set.options, Threads::new(3))?;
    for again in [case.quantizer, other.as_ref()] {
        let found = again.calibration(SITE, case.shape)?;
        ensure(found.as_ref() == Some(wanted), || {
            format!("first {wanted:?}, then {found:?}")
        })?;
    }
    for (at, statistic) in wanted.statistics.iter().enumerate() {
        let dtype = statistic.dtype();
        ensure([DType::F32, DType::F64].contains(&dtype), || {
            format!("{statistic:?} is in {dtype}, expected f32 or f64")
        })?;
        ensure(!wanted.statistics[..at].contains(statistic), || {
            format!("{statistic:?} is asked for twice")
        })?;
    }
    Ok(())
}

fn bytes(case: &Case<'_>, wanted: &Calibration) -> Checked {
    let weight = weights::ordinary(case.shape, 51);
    let inputs = Inputs::ordinary(case.shape[1]);
    let with = (wanted, &inputs);
    let zeros = encode(case.quantizer, &case.format, with, &weight, 0x00)??;
    for fill in [0x00, 0xff, 0xa5] {
        let other = encode(case.quantizer, &case.format, with, &weight, fill)??;
        case.same(
            &other.segments(),
            &zeros.segments(),
            "the result depends on what lay in segments or workspace before",
        )?;
        let parts = other.segments.iter().chain([&other.workspace]);
        for (index, part) in parts.enumerate() {
            let name = case.format.segments.get(index);
            let name = name.map_or("the workspace", |segment| &segment.name);
            ensure(part.overrun().is_none(), || format!("`{name}` was overrun"))?;
        }
    }
    Ok(())
}

fn threads(subject: &Subject<'_, dyn Quantizer>, case: &Case<'_>, wanted: &Calibration) -> Checked {
    let weight = weights::ordinary(case.shape, 52);
    let inputs = Inputs::ordinary(case.shape[1]);
    let with = (wanted, &inputs);
    let alone = encode(case.quantizer, &case.format, with, &weight, 0)??;
    for count in [1, 2, 3, 7] {
        let quantizer = subject.make(&case.set.options, Threads::new(count))?;
        let found = encode(quantizer.as_ref(), &case.format, with, &weight, 0)??;
        if let Some(place) = difference(&case.format, &found.segments(), &alone.segments()) {
            return Err(Fault::Failed(format!("on {count} threads: {place}")));
        }
    }
    Ok(())
}

fn error(case: &Case<'_>, wanted: &Calibration) -> Checked {
    let weight = weights::ordinary(case.shape, 53);
    let inputs = Inputs::ordinary(case.shape[1]);
    let with = (wanted, &inputs);
    let encoded = encode(case.quantizer, &case.format, with, &weight, 0)??;
    let found = inputs.error(&weight, &case.decode(&encoded.segments())?);
    let (_, plain) = case.round_trip(&weight)?;
    let bound = WORSE * inputs.error(&weight, &plain);
    ensure(within(found, bound), || {
        format!("the squared error of the outputs is {found:.4e}, expected at most {bound:.4e}")
    })
}

fn unusual(case: &Case<'_>, wanted: &Calibration) -> Checked {
    let channels = case.shape[1] as usize;
    let mut weight = weights::ordinary(case.shape, 54);
    let zeros = vec![0.0; TOKENS as usize * channels];
    let one: Vec<f32> = (0..zeros.len())
        .map(|at| f32::from(u8::from(at % channels == channels / 2)))
        .collect();
    for (x, what) in [(zeros, "all 0"), (one, "in one channel")] {
        let inputs = Inputs::of(&x, channels);
        let with = (wanted, &inputs);
        let encoded = encode(case.quantizer, &case.format, with, &weight, 0)??;
        let decoded = case.decode(&encoded.segments())?;
        ensure(decoded.iter().all(|x| x.is_finite()), || {
            format!("inputs that are {what} give weights that are not finite")
        })?;
    }
    let last = weight.len() - 1;
    weight[last] = f32::NAN;
    let inputs = Inputs::ordinary(case.shape[1]);
    let with = (wanted, &inputs);
    match encode(case.quantizer, &case.format, with, &weight, 0)? {
        Err(error) => refusal(&error),
        Ok(_) => Err(Fault::Failed("a weight with a NaN is taken".to_owned())),
    }
}
