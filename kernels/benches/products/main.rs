//! Products and attention at training's shapes -> GFLOP/s of this thread, beside the `gemm` crate's
//! and the machine's peak.
//!
//! Contestants alternate, and the clock is the thread's CPU time, so that a busy machine changes
//! the ratios little: `cargo bench -p espalier-kernels`. With the word `step`, the products of a
//! training step alone, on each instruction set, on one thread and on all (with `fastest` by the
//! fastest set, with one such as `768x2048` of this weight); with the word `row`, those of one row
//! and of a few; with the word `attention`, attention alone.
#![allow(clippy::print_stdout)] // A benchmark prints its figures.
#![allow(unsafe_code)] // Calls of the gemm crate and of the clock.

mod attend;
mod clock;
mod formats;
mod numbers;
mod row;
mod step;
mod threads;

use std::hint::black_box;

use espalier_interface::Serial;
use espalier_kernels::decode::{FormatDecoder, Packed, TileDecoder};
use espalier_kernels::element::Element;
use espalier_kernels::linear::{self, Onto, WeightGradient};
use espalier_kernels::matmul::{self, Dense, Isa, Rows, Scalar, Update};
use half::bf16;

use crate::clock::best;
use crate::formats::{four_bit, hqq};
use crate::numbers::numbers;

/// GFLOP/s of fused multiply-adds that stay in registers; NaN without AVX-512.
fn peak() -> f64 {
    const STEPS: usize = 50_000;
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    fn avx512() -> f32 {
        use std::arch::x86_64::*;
        let (a, b) = (_mm512_set1_ps(black_box(0.999)), _mm512_set1_ps(0.5));
        let mut sums = [a; 16];
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, a, b);
            }
        }
        sums.iter().map(|&sum| _mm512_reduce_add_ps(sum)).sum()
    }
    #[cfg(target_arch = "x86_64")]
    if Isa::detect().vectors() == Isa::Avx512 {
        let mut body = || {
            // SAFETY: the feature was detected.
            black_box(unsafe { avx512() });
        };
        return (2 * STEPS * 16 * 16) as f64 / best([&mut body])[0] * 1e-9;
    }
    f64::NAN
}

/// Calls the gemm crate: `c [m, n] = a b`, with the (depth, other) strides of `a` and `b`.
fn gemm_crate(
    [m, n, k]: [usize; 3],
    (a, a_strides): (&[f32], [usize; 2]),
    (b, b_strides): (&[f32], [usize; 2]),
    c: &mut [f32],
    update: Update,
) {
    let [a_depth, a_other] = a_strides.map(|stride| stride as isize);
    let [b_depth, b_other] = b_strides.map(|stride| stride as isize);
    let (read, alpha) = match update {
        Update::Overwrite => (false, 0.0),
        Update::Accumulate => (true, 1.0),
    };
    // SAFETY: the strides describe `m k`, `n k` and `m n` elements.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.as_mut_ptr(),
            1,
            n as isize,
            read,
            a.as_ptr(),
            a_depth,
            a_other,
            b.as_ptr(),
            b_other,
            b_depth,
            alpha,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// Memory for every product of `tokens` tokens with a weight `[n, m]`, by each instruction set of
/// this processor.
fn workspace(threads: usize, [tokens, n, m]: [usize; 3]) -> usize {
    let sizes = [[tokens, n, m], [tokens, m, n], [n, m, tokens]];
    let bytes = sizes.into_iter().flat_map(|size| {
        Isa::available().iter().map(move |&isa| {
            let of_bf16 = matmul::workspace_bytes::<bf16>(isa, threads, size);
            of_bf16.max(matmul::workspace_bytes::<f32>(isa, threads, size))
        })
    });
    bytes.fold(0, usize::max)
}

/// `y = x W^T` on one thread.
fn forward<E: Element>(isa: Isa, x: &[E], weight: &dyn Rows<E::Acc>, y: &mut [E], space: &mut [u8])
where
    E::Acc: Scalar,
{
    let y = Onto::product(y);
    linear::forward(isa, &Serial, x, weight, None, y, space);
}

/// `dx = dy W` on one thread.
fn input_backward<E: Element>(
    isa: Isa,
    dy: &[E],
    weight: &dyn Rows<E::Acc>,
    dx: &mut [E],
    space: &mut [u8],
) where
    E::Acc: Scalar,
{
    let dx = Onto::product(dx);
    linear::input_backward(isa, &Serial, dy, weight, dx, space);
}

/// `dW += dy^T x` on one thread.
fn weight_backward(
    isa: Isa,
    dy: &[f32],
    x: &[f32],
    (values, size): (&mut [f32], (usize, usize)),
    space: &mut [u8],
) {
    let dweight = WeightGradient {
        values,
        size,
        alpha: 1.0,
    };
    linear::weight_backward(isa, &Serial, dy, x, dweight, space);
}

/// The three products of one linear layer: dense f32 against the gemm crate, bf16, and packed.
fn layer(peak: f64, [t, n, m]: [usize; 3]) {
    let isa = Isa::detect();
    let (x, w, dy) = (
        numbers::<f32>(t * m),
        numbers::<f32>(n * m),
        numbers::<f32>(t * n),
    );
    let (xh, wh, dyh) = (
        numbers::<bf16>(t * m),
        numbers::<bf16>(n * m),
        numbers::<bf16>(t * n),
    );
    let (mut y, mut dx, mut dw) = (dy.clone(), x.clone(), w.clone());
    let (mut yh, mut dxh) = (dyh.clone(), xh.clone());
    let (mut y2, mut dx2, mut dw2) = (dy.clone(), x.clone(), w.clone());
    let (mut y3, mut dx3) = (dy.clone(), x.clone());
    let (dense, dense_h) = (Dense::new(&w, n, m), Dense::new(&wh, n, m));
    let (format, data) = four_bit(n, m);
    let segments: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let decoder = FormatDecoder::new(&format).expect("the format is described");
    let packed_weight = decoder.weight(&segments);
    let packed = Packed(&packed_weight);
    let mut spaces = [(); 3].map(|()| vec![0u8; workspace(1, [t, n, m])]);
    let [space, space_h, space_p] = &mut spaces;
    let flops = (2 * t * n * m) as f64 * 1e-9;
    let report = |name: &str, secs: &[f64]| {
        let speeds: Vec<f64> = secs.iter().map(|secs| flops / secs).collect();
        print!(
            "{name:10} T {t:5} N {n:5} M {m:5}: f32 {:6.1} ({:3.0} % of peak) / gemm {:6.1} = {:4.2}",
            speeds[0],
            100.0 * speeds[0] / peak,
            speeds[1],
            speeds[0] / speeds[1],
        );
        if let [_, _, half, packed] = speeds[..] {
            print!(", bf16 {half:6.1}, 4-bit {packed:6.1}");
        }
        println!();
    };
    let secs = best([
        &mut || forward(isa, &x, &dense, &mut y, space),
        &mut || {
            gemm_crate(
                [t, n, m],
                (&x, [1, m]),
                (&w, [1, m]),
                &mut y2,
                Update::Overwrite,
            )
        },
        &mut || forward(isa, &xh, &dense_h, &mut yh, space_h),
        &mut || forward(isa, &x, &packed, &mut y3, space_p),
    ]);
    report("y = x W'", &secs);
    let set = Update::Overwrite;
    let secs = best([
        &mut || input_backward(isa, &dy, &dense, &mut dx, space),
        &mut || gemm_crate([t, m, n], (&dy, [1, n]), (&w, [m, 1]), &mut dx2, set),
        &mut || input_backward(isa, &dyh, &dense_h, &mut dxh, space_h),
        &mut || input_backward(isa, &dy, &packed, &mut dx3, space_p),
    ]);
    report("dx = dy W", &secs);
    let secs = best([
        &mut || weight_backward(isa, &dy, &x, (&mut dw, (n, m)), space),
        &mut || {
            gemm_crate(
                [n, m, t],
                (&dy, [n, 1]),
                (&x, [m, 1]),
                &mut dw2,
                Update::Accumulate,
            )
        },
    ]);
    report("dW = dy' x", &secs);
}

/// Decoding alone, in strips as in products, and a product of one token; NF4 and HQQ alternate.
fn decode() {
    const SHAPE: [usize; 2] = [2048, 2048];
    const HQQ: [(u32, usize); 6] = [(4, 1), (4, 0), (3, 1), (3, 0), (2, 1), (2, 0)];
    let [rows, cols] = SHAPE;
    for (bits, axis) in HQQ {
        let formats = [four_bit(rows, cols), hqq(bits, axis, rows, cols)];
        let decoders = formats
            .each_ref()
            .map(|(format, _)| FormatDecoder::new(format).expect("the format is described"));
        let segments = formats
            .each_ref()
            .map(|(_, data)| data.iter().map(Vec::as_slice).collect::<Vec<&[u8]>>());
        let [nf4, other] = [0, 1].map(|i| decoders[i].weight(&segments[i]));
        let mut outs = [(); 2].map(|()| vec![0.0f32; 16 * 256]);
        let [out, out2] = &mut outs;
        let strips = |weight: &dyn TileDecoder, out: &mut [f32]| {
            for row in (0..rows).step_by(16) {
                for col in (0..cols).step_by(256) {
                    weight.decode(row..row + 16, col..col + 256, out);
                }
            }
        };
        let alone = best([&mut || strips(&nf4, out), &mut || strips(&other, out2)]);
        let x = numbers::<f32>(cols);
        let mut ys = [(); 2].map(|()| vec![0.0f32; rows]);
        let mut spaces = [(); 2].map(|()| vec![0u8; workspace(1, [1, rows, cols])]);
        let ([y, y2], [space, space2]) = (&mut ys, &mut spaces);
        let (nf4, other) = (Packed(&nf4), Packed(&other));
        let product = best([
            &mut || forward(Isa::detect(), &x, &nf4, y, space),
            &mut || forward(Isa::detect(), &x, &other, y2, space2),
        ]);
        let speed = |secs: f64| (rows * cols) as f64 / secs * 1e-9;
        println!(
            "hqq {bits} bits axis {axis} / nf4: decode {:.2} / {:.2} G elements/s = {:.2}, product of one token {:.2} / {:.2} = {:.2}",
            speed(alone[1]),
            speed(alone[0]),
            alone[0] / alone[1],
            speed(product[1]),
            speed(product[0]),
            product[0] / product[1],
        );
    }
}

fn main() {
    if std::env::args().any(|word| word == "step") {
        return step::run();
    }
    if std::env::args().any(|word| word == "row") {
        return row::run();
    }
    if std::env::args().any(|word| word == "attention") {
        return attend::run();
    }
    let peak = peak();
    println!(
        "{} kernels, GFLOP/s of one thread; peak {peak:.0}",
        Isa::detect().name()
    );
    decode();
    for shape in [
        [1, 2048, 2048],
        [16, 2048, 2048],
        [256, 2048, 2048],
        [2048, 2048, 2048],
        [512, 5632, 2048],
        [2048, 16, 2048],
        [2048, 2048, 16],
        [512, 768, 320],
    ] {
        layer(peak, shape);
    }
    attend::run();
}
