//! A product of one row, as in generation -> GB/s of the weight's bytes, beside those of a loop
//! that only reads.

use std::hint::black_box;
use std::time::Instant;

use espalier_interface::Services;
use espalier_kernels::decode::{FormatDecoder, Packed};
use espalier_kernels::element::Element;
use espalier_kernels::linear::{self, Onto};
use espalier_kernels::matmul::{Dense, Isa, Rows};
use half::bf16;

use crate::clock::thread_secs;
use crate::formats::{four_bit, hqq};
use crate::numbers::numbers;
use crate::threads::Threads;
use crate::workspace;

/// `[out, in]` of the weight, larger than caches in every format.
const SIZE: [usize; 2] = [32_000, 4096];
const TURNS: usize = 5;

/// Bytes of a cache line, where weights of a device begin.
const LINE: usize = 64;

/// Numbers, and room to begin on a cache line.
fn aligned<E: Element>(len: usize) -> Vec<E> {
    numbers(len + LINE)
}

/// `len` elements from the first cache line on.
fn on_a_line<E>(values: &[E], len: usize) -> &[E] {
    let skip = values.as_ptr().align_offset(LINE);
    &values[skip..skip + len]
}

/// Reads all of `bytes` on some threads.
fn read(on: &Threads, bytes: &[u64]) {
    let share = bytes.len().div_ceil(on.threads());
    on.parallel_for(on.threads(), &|thread| {
        let part = &bytes[thread * share..((thread + 1) * share).min(bytes.len())];
        let mut sums = [0u64; 64];
        for part in part.chunks_exact(64) {
            sums.iter_mut()
                .zip(part)
                .for_each(|(sum, x)| *sum = sum.wrapping_add(*x));
        }
        black_box(sums);
    });
}

/// A row times a weight.
fn multiply<E: Element<Acc = f32>>(
    (isa, on): (Isa, &Threads),
    weight: &dyn Rows<f32>,
    rows: usize,
    space: &mut [u8],
) {
    let [n, m] = SIZE;
    let (x, mut y) = (numbers::<E>(rows * m), vec![E::default(); rows * n]);
    linear::forward(isa, on, &x, weight, None, Onto::product(&mut y), space);
    black_box(y);
}

/// Prints a line for each instruction set, dtype of the row and format of the weight.
#[allow(clippy::print_stdout)] // A benchmark prints its figures.
pub fn run() {
    let [n, m] = SIZE;
    let (wide, narrow) = (aligned::<f32>(n * m), aligned::<bf16>(n * m));
    let (wide, narrow) = (on_a_line(&wide, n * m), on_a_line(&narrow, n * m));
    let formats = [four_bit(n, m), hqq(4, 1, n, m)];
    let decoders = formats
        .each_ref()
        .map(|(format, _)| FormatDecoder::new(format).expect("the format is described"));
    let segments = formats
        .each_ref()
        .map(|(_, data)| data.iter().map(Vec::as_slice).collect::<Vec<&[u8]>>());
    let codes = segments.each_ref().map(|segments| {
        let mut codes = vec![0; segments[0].len() + LINE];
        let skip = codes.as_ptr().align_offset(LINE);
        codes[skip..skip + segments[0].len()].copy_from_slice(segments[0]);
        codes
    });
    let segments = [0, 1].map(|i| {
        let mut segments = segments[i].clone();
        segments[0] = on_a_line(&codes[i], segments[0].len());
        segments
    });
    let bytes = |at: usize| segments[at].iter().map(|bytes| bytes.len()).sum::<usize>();
    let [nf4, hqq] = [0, 1].map(|i| decoders[i].weight(&segments[i]));
    let (wide_rows, narrow_rows) = (Dense::new(wide, n, m), Dense::new(narrow, n, m));
    let (nf4, hqq) = (Packed(&nf4), Packed(&hqq));
    let weights: [(&str, usize, &dyn Rows<f32>); 4] = [
        ("f32", 4 * n * m, &wide_rows),
        ("bf16", 2 * n * m, &narrow_rows),
        ("nf4", bytes(0), &nf4),
        ("hqq 4 bits", bytes(1), &hqq),
    ];
    // SAFETY: any bytes are numbers.
    let (_, words, _) = unsafe { wide.align_to::<u64>() };
    for on in &Threads::one_and_all() {
        let threads = on.threads();
        let mut space = vec![0; workspace(threads, [16, n, m])];
        for &isa in Isa::available().iter().filter(|&&isa| isa != Isa::Portable) {
            for (name, bytes, weight) in weights {
                let is_half = isa != isa.vectors();
                let mut least = [f64::INFINITY; 5];
                for _ in 0..TURNS {
                    for (rows, least) in [0, 1, 4, 8, 16].into_iter().zip(&mut least) {
                        let (start, busy) = (Instant::now(), thread_secs());
                        match (rows, is_half) {
                            (0, _) => read(on, &words[..bytes / 8]),
                            (_, true) => multiply::<bf16>((isa, on), weight, rows, &mut space),
                            (_, false) => multiply::<f32>((isa, on), weight, rows, &mut space),
                        }
                        // As in a step: one thread is timed by its own clock.
                        let secs = match threads {
                            1 => thread_secs() - busy,
                            _ => start.elapsed().as_secs_f64(),
                        };
                        *least = least.min(secs);
                    }
                }
                let [read, one, four, eight, many] = least.map(|secs| bytes as f64 * 1e-9 / secs);
                println!(
                    "{threads} threads, {:11} {name:10}: reading {read:5.1} GB/s, 1 row {one:5.1} \
                     ({:3.0} %), 4 rows {four:5.1}, 8 rows {eight:5.1}, 16 rows {many:5.1}",
                    isa.name(),
                    100.0 * one / read,
                );
            }
        }
    }
}
