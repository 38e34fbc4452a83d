//! A packed weight in the products of a training step: forward against the decoded weight, backward
//! against finite differences, on a device in f64.

use espalier_conformance::{Checked, Fault, Suite, weights, within};
use espalier_engine::decoder::Callback;
use espalier_engine::device_graph::{DeviceParam, GraphKernels};
use espalier_interface::format::{Decoding, Format};
use espalier_interface::{DType, Quantizer, WeightLayout};
use espalier_registry::Chosen;

use super::launch::{Weight, product};

/// Weights `[N, M]`: whole blocks, and rows that end inside one.
const SHAPES: [[u64; 2]; 3] = [[64, 64], [17, 100], [1, 33]];
/// Tokens of an input.
const TOKENS: u64 = 3;
/// Perturbed elements of the input.
const MOVED: usize = 24;
/// Size of the perturbation. The product is linear, so it can be large.
const STEP: f64 = 0.5;
/// Relative error of a sum of some hundred products in f64.
const CLOSE: f64 = 1e-9;

/// Runs the checks of a quantizer's weights on a device. Where one of the two is missing, they are
/// skipped or fail with it.
pub fn check(bench: &Checked<Bench>, suite: &mut Suite) {
    suite.check(
        "linear.forward",
        "the host's product with the packed weight is the product with its decoded numbers",
        || each(bench, forward),
    );
    suite.check(
        "linear.input_gradient",
        "the gradient of the input through the packed weight agrees with finite differences",
        || each(bench, input_gradient),
    );
}

/// A quantizer and a device for products with its weights.
pub struct Bench {
    /// The quantizer.
    pub quantizer: Chosen<dyn Quantizer>,
    /// The device that multiplies, and its kernels.
    pub kernels: GraphKernels,
}

/// A packed weight and its decoded values.
struct Sample<'a> {
    kernels: &'a GraphKernels,
    weight: Weight,
    shape: [u64; 2],
    /// `[N, M]`.
    decoded: Vec<f32>,
}

fn each(bench: &Checked<Bench>, body: impl Fn(&Sample<'_>) -> Checked) -> Checked {
    let bench = bench.as_ref().map_err(Clone::clone)?;
    for shape in SHAPES {
        // Refused shapes are covered by another check.
        let Ok(format) = bench.quantizer.plugin.format(shape) else {
            continue;
        };
        let sample = sample(bench, format)?;
        body(&sample).map_err(|fault| fault.at(&format!("shape {shape:?}")))?;
    }
    Ok(())
}

fn sample(bench: &Bench, format: Format) -> Checked<Sample<'_>> {
    format.validate()?;
    let quantizer = &bench.quantizer.plugin;
    let shape = format.shape;
    let dense = weights::ordinary(shape, 40);
    let mut segments: Vec<Vec<u8>> = format
        .segments
        .iter()
        .map(|segment| vec![0; segment.bytes() as usize])
        .collect();
    let mut workspace = vec![0; quantizer.encode_workspace(shape)? as usize];
    let mut runs: Vec<&mut [u8]> = segments.iter_mut().map(Vec::as_mut_slice).collect();
    quantizer.encode(&dense, shape, &mut runs, &mut workspace)?;
    let runs: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
    let mut decoded = vec![f32::NAN; dense.len()];
    quantizer.decode(&runs, shape, 0..shape[0], 0..shape[1], &mut decoded)?;
    let decoder = (format.decoding == Decoding::Callback)
        .then(|| Callback::new(&bench.quantizer, "weight", shape).decoder());
    Ok(Sample {
        kernels: &bench.kernels,
        weight: Weight {
            shape,
            param: DeviceParam {
                layout: WeightLayout::Packed(Box::new(format)),
                bytes: segments,
                decoder,
            },
        },
        shape,
        decoded,
    })
}

fn forward(sample: &Sample<'_>) -> Checked {
    let [rows, cols] = sample.shape;
    let x = numbers([TOKENS, cols], 41);
    let found = product(sample.kernels, "linear", (&x, cols), &sample.weight, rows)?;
    let dense = Weight::dense(sample.shape, &sample.decoded);
    let expected = product(sample.kernels, "linear", (&x, cols), &dense, rows)?;
    for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
        if !within((found - expected).abs(), CLOSE * expected.abs().max(1e-3)) {
            let (token, row) = (at as u64 / rows, at as u64 % rows);
            return Err(Fault::Failed(format!(
                "token {token}, row {row}: expected {expected:e}, found {found:e}"
            )));
        }
    }
    Ok(())
}

fn input_gradient(sample: &Sample<'_>) -> Checked {
    let [rows, cols] = sample.shape;
    let (x, dy) = (numbers([TOKENS, cols], 42), numbers([TOKENS, rows], 43));
    let backward = "linear_input_backward";
    let dx = product(sample.kernels, backward, (&dy, rows), &sample.weight, cols)?;
    let loss = |x: &[f64]| -> Checked<f64> {
        let y = product(sample.kernels, "linear", (x, cols), &sample.weight, rows)?;
        Ok(y.iter().zip(&dy).map(|(y, dy)| y * dy).sum())
    };
    let stride = (x.len() / MOVED).max(1);
    for at in (0..x.len()).step_by(stride) {
        let moved = |by: f64| {
            let mut moved = x.clone();
            moved[at] += by;
            loss(&moved)
        };
        let expected = (moved(STEP)? - moved(-STEP)?) / (2.0 * STEP);
        let found = dx[at];
        if !within((found - expected).abs(), 1e-6 * expected.abs().max(1e-3)) {
            let (token, column) = (at as u64 / cols, at as u64 % cols);
            return Err(Fault::Failed(format!(
                "token {token}, column {column}: expected {expected:e} by finite differences, found {found:e}"
            )));
        }
    }
    Ok(())
}

fn numbers(shape: [u64; 2], seed: u64) -> Vec<f64> {
    let numbers = weights::gaussian(shape, 1.0, seed);
    numbers.into_iter().map(f64::from).collect()
}

impl Weight {
    /// A dense f32 weight.
    fn dense(shape: [u64; 2], values: &[f32]) -> Self {
        Weight {
            shape,
            param: DeviceParam {
                layout: WeightLayout::Dense(DType::F32),
                bytes: vec![values.iter().flat_map(|x| x.to_le_bytes()).collect()],
                decoder: None,
            },
        }
    }
}
