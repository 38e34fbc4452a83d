//! The linear layers of a training step -> GFLOP/s of each instruction set, in f32 and bf16.

use std::time::Instant;

use espalier_interface::{DType, Services};
use espalier_kernels::decode::{FormatDecoder, Packed};
use espalier_kernels::element::Element;
use espalier_kernels::linear::{self, Onto, WeightGradient};
use espalier_kernels::matmul::{Dense, Isa, Rows};
use half::bf16;

use crate::clock::thread_secs;
use crate::formats::four_bit;
use crate::numbers::Lined;
use crate::threads::Threads;
use crate::workspace;

const TOKENS: usize = 2048;
/// `[out, in]` of weights: the layers of a Llama of 124M parameters and a wide one, and an
/// adapter's of 16 rows and columns.
const WEIGHTS: [[usize; 2]; 7] = [
    [16, 768],
    [768, 16],
    [768, 768],
    [256, 768],
    [2048, 768],
    [768, 2048],
    [4096, 4096],
];
const TURNS: usize = 9;
/// Bytes of layers that take turns: as in training, none is in a cache when its turn comes.
const LAYER_BYTES: usize = 300 << 20;
const MOST_LAYERS: usize = 24;

/// A layer's tokens, weights and results in one dtype.
struct Layer<E> {
    x: Lined<E>,
    weight: Lined<E>,
    y: Lined<E>,
    dx: Lined<E>,
    dweight: Lined<f32>,
}

/// Layers of one size that take turns, and the memory of their products.
struct Layers<E> {
    layers: Vec<Layer<E>>,
    last: usize,
    space: Lined<f32>,
}

impl<E: Element<Acc = f32>> Layers<E> {
    fn new([n, m]: [usize; 2], threads: usize) -> Self {
        let layer = |_| Layer {
            x: Lined::numbers(TOKENS * m),
            weight: Lined::numbers(n * m),
            y: Lined::numbers(TOKENS * n),
            dx: Lined::numbers(TOKENS * m),
            dweight: Lined::numbers(n * m),
        };
        let bytes = size_of::<E>() * (TOKENS * (2 * m + n) + n * m) + size_of::<f32>() * n * m;
        let count = (LAYER_BYTES / bytes).clamp(2, MOST_LAYERS);
        let space = workspace(threads, [TOKENS, n, m]).div_ceil(size_of::<f32>());
        Layers {
            layers: (0..count).map(layer).collect(),
            last: 0,
            space: Lined::numbers(space),
        }
    }

    /// Seconds of forward and input gradient with a dense and a packed weight, and of the weight's
    /// gradient.
    fn turn(&mut self, isa: Isa, size: [usize; 2], packed: &Packed<'_>, on: &Threads) -> [f64; 5] {
        let [n, m] = size;
        self.last = (self.last + 1) % self.layers.len();
        let layer = &mut self.layers[self.last];
        let dense = Dense::new(&layer.weight, n, m);
        let weights: [&dyn Rows<f32>; 2] = [&dense, packed];
        let mut secs = [0.0; 5];
        let mut time = |at: usize, body: &mut dyn FnMut()| {
            let (start, busy) = (Instant::now(), thread_secs());
            body();
            // One thread is timed by its own clock, which a busy machine changes little.
            secs[at] = match on.threads() {
                1 => thread_secs() - busy,
                _ => start.elapsed().as_secs_f64(),
            };
        };
        let space = bytes_of(&mut self.space);
        for (kind, weight) in weights.into_iter().enumerate() {
            time(2 * kind, &mut || {
                linear::forward(
                    isa,
                    on,
                    &layer.x,
                    weight,
                    None,
                    Onto::product(&mut layer.y),
                    space,
                )
            });
            time(2 * kind + 1, &mut || {
                linear::input_backward(
                    isa,
                    on,
                    &layer.y,
                    weight,
                    Onto::product(&mut layer.dx),
                    space,
                );
            });
        }
        time(4, &mut || {
            let grown = WeightGradient {
                values: &mut layer.dweight,
                size: (n, m),
                alpha: 1.0,
            };
            linear::weight_backward(isa, on, &layer.y, &layer.x, grown, space)
        });
        secs
    }
}

/// The bytes of `values`.
fn bytes_of(values: &mut [f32]) -> &mut [u8] {
    // SAFETY: a byte is less aligned than a number, and any bits are a number.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

/// Prints a line a shape, dtype and instruction set; with the word `fastest` for the fastest alone,
/// with one such as `768x2048` for this weight.
pub fn run() {
    let of = |[n, m]: [usize; 2]| format!("{n}x{m}");
    let words: Vec<String> = std::env::args().collect();
    let some: Vec<_> = WEIGHTS
        .into_iter()
        .filter(|&size| words.contains(&of(size)))
        .collect();
    let weights = if some.is_empty() { &WEIGHTS[..] } else { &some };
    for on in &Threads::one_and_all() {
        weights.iter().for_each(|&size| compare(size, on));
    }
}

/// The fastest of some turns of each dtype and instruction set, which alternate.
#[allow(clippy::print_stdout)] // A benchmark prints its figures.
fn compare(size: [usize; 2], on: &Threads) {
    let ([n, m], threads) = (size, on.threads());
    let (mut wide, mut half) = (
        Layers::<f32>::new(size, threads),
        Layers::<bf16>::new(size, threads),
    );
    let (format, data) = four_bit(n, m);
    let segments: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let decoder = FormatDecoder::new(&format).expect("the format is described");
    let weight = decoder.weight(&segments);
    let packed = Packed(&weight);
    // Instructions for bf16 serve no other dtype.
    let all = Isa::available();
    let all = if std::env::args().any(|word| word == "fastest") {
        &all[..1]
    } else {
        all
    };
    let sets = all.iter().filter(|&&isa| isa != Isa::Portable);
    let contests: Vec<(Isa, DType)> = sets
        .flat_map(|&isa| [DType::F32, DType::BF16].map(|dtype| (isa, dtype)))
        .filter(|&(isa, dtype)| isa.serving(dtype) == isa)
        .collect();
    let mut least = vec![[f64::INFINITY; 5]; contests.len()];
    // Each takes a second a turn or more.
    for _ in 0..if n == 4096 { TURNS / 3 } else { TURNS } {
        for (&(isa, dtype), least) in contests.iter().zip(&mut least) {
            let secs = match dtype {
                DType::BF16 => half.turn(isa, size, &packed, on),
                _ => wide.turn(isa, size, &packed, on),
            };
            for (least, secs) in least.iter_mut().zip(secs) {
                *least = least.min(secs);
            }
        }
    }
    for ((isa, dtype), least) in contests.into_iter().zip(least) {
        let [y, dx, packed_y, packed_dx, dw] =
            least.map(|secs| (2 * TOKENS * n * m) as f64 * 1e-9 / secs);
        println!(
            "{threads} threads, {n:4} x {m:4}, {:4} {:11}: y {y:6.1}, dx {dx:6.1}; \
             4-bit y {packed_y:6.1}, dx {packed_dx:6.1}; dW {dw:6.1}",
            dtype.name(),
            isa.name()
        );
    }
}
