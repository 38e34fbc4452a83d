//! Products of the shapes that training has -> GFLOP/s, beside the `gemm` crate's and the machine's peak.
#![allow(unsafe_code)] // Calls of the gemm crate.

use std::hint::black_box;
use std::time::Instant;

use espalier_interface::{Serial, Services};
use espalier_kernels::element::{Element, Real};
use espalier_kernels::matmul::{self, Dense, Isa, Operand, Output, Rows, Update};
use espalier_kernels::simd::vectorized;
use half::bf16;

/// Two plain threads, started in every call.
struct Two;

impl Services for Two {
    fn threads(&self) -> usize {
        2
    }

    fn parallel_for(&self, count: usize, body: &(dyn Fn(usize) + Sync)) {
        std::thread::scope(|scope| {
            scope.spawn(|| (1..count).step_by(2).for_each(body));
            (0..count).step_by(2).for_each(body);
        });
    }
}

/// Seconds of the fastest of several runs, each of at least a few milliseconds.
fn best(mut body: impl FnMut()) -> f64 {
    body();
    let start = Instant::now();
    body();
    let times = (3e-3 / start.elapsed().as_secs_f64()).ceil().max(1.0) as usize;
    let mut least = f64::INFINITY;
    for _ in 0..9 {
        let start = Instant::now();
        (0..times).for_each(|_| body());
        least = least.min(start.elapsed().as_secs_f64() / times as f64);
    }
    least
}

fn numbers<E: Element>(len: usize) -> Vec<E> {
    let value = |i: usize| E::Acc::from_f64(((i * 7919) % 1009) as f64 / 1009.0 - 0.5);
    (0..len).map(|i| E::store(value(i))).collect()
}

/// GFLOP/s of fused multiply-adds that never leave the registers, on one thread.
fn peak() -> f64 {
    const STEPS: usize = 20_000;
    let mut sums = [[0.0f32; 16]; 12];
    let secs = best(|| {
        vectorized(
            #[inline(always)]
            || {
                let mut local = black_box(sums);
                for _ in 0..STEPS {
                    for sum in &mut local {
                        for x in sum {
                            *x = x.mul_add(0.999, 0.5);
                        }
                    }
                }
                sums = local;
            },
        );
    });
    black_box(sums);
    (2 * STEPS * 12 * 16) as f64 / secs * 1e-9
}

/// GFLOP/s of `left [m, k] right [n, k]^T` or of its relatives, given by the operands.
fn ours<E: Element>(
    services: &dyn Services,
    left: Operand<'_, E::Acc>,
    right: Operand<'_, E::Acc>,
) -> f64
where
    E::Acc: matmul::Scalar,
{
    let ((m, k), n) = (left.size(), right.size().0);
    let mut out = vec![E::default(); m * n];
    let mut workspace = vec![0; matmul::workspace_bytes::<E>(services.threads())];
    let secs = best(|| {
        let out = Output {
            values: &mut out,
            stride: n,
            update: Update::Overwrite,
            bias: None,
        };
        matmul::matmul(services, left, right, out, &mut workspace);
    });
    (2 * m * n * k) as f64 / secs * 1e-9
}

/// GFLOP/s of the gemm crate; `a` and `b` are (values, depth stride, other stride).
fn gemm_crate(
    threads: usize,
    [m, n, k]: [usize; 3],
    a: (&[f32], isize, isize),
    b: (&[f32], isize, isize),
) -> f64 {
    let mut out = vec![0.0f32; m * n];
    let parallelism = match threads {
        1 => gemm::Parallelism::None,
        _ => gemm::Parallelism::Rayon(threads),
    };
    let secs = best(|| {
        // SAFETY: the strides describe `m k`, `n k` and `m n` elements.
        unsafe {
            gemm::gemm(
                m,
                n,
                k,
                out.as_mut_ptr(),
                1,
                n as isize,
                false,
                a.0.as_ptr(),
                a.1,
                a.2,
                b.0.as_ptr(),
                b.2,
                b.1,
                0.0,
                1.0,
                false,
                false,
                false,
                parallelism,
            );
        }
    });
    (2 * m * n * k) as f64 / secs * 1e-9
}

fn main() {
    let peak = peak();
    println!(
        "{} kernels, peak of one thread {peak:.0} GFLOP/s",
        Isa::detect().name()
    );
    println!("GFLOP/s: 1 thread ours / gemm, 2 threads ours / gemm, bf16 ours on 1 and 2");
    let shapes = [
        [1, 2048, 2048],
        [16, 2048, 2048],
        [64, 2048, 2048],
        [256, 2048, 2048],
        [2048, 2048, 2048],
        [512, 5632, 2048],
        [512, 2048, 5632],
        [2048, 16, 2048],
        [2048, 2048, 16],
        [512, 768, 288],
    ];
    for [t, n, k] in shapes {
        let (x, w, dy) = (
            numbers::<f32>(t * k),
            numbers::<f32>(n * k),
            numbers::<f32>(t * n),
        );
        let (xh, wh, dyh) = (
            numbers::<bf16>(t * k),
            numbers::<bf16>(n * k),
            numbers::<bf16>(t * n),
        );
        let (x, w, dy) = (
            Dense::new(&x, t, k),
            Dense::new(&w, n, k),
            Dense::new(&dy, t, n),
        );
        let (xh, wh, dyh) = (
            Dense::new(&xh, t, k),
            Dense::new(&wh, n, k),
            Dense::new(&dyh, t, n),
        );
        type Side<'a> = (&'a dyn Rows<f32>, &'a dyn Rows<f32>, bool);
        let sides = |name: &str, [m, n, k]: [usize; 3], a: Side<'_>, b: Side<'_>| {
            let operand = |source, over_rows: bool| match over_rows {
                true => Operand::over_rows(source),
                false => Operand::over_cols(source),
            };
            let (left, right) = (operand(a.0, a.2), operand(b.0, b.2));
            let (half_left, half_right) = (operand(a.1, a.2), operand(b.1, b.2));
            let flat = |side: &Side<'_>| {
                side.0
                    .window(0..side.0.size().0, 0..side.0.size().1, &mut [])
                    .0
                    .to_vec()
            };
            let (fa, fb) = (flat(&a), flat(&b));
            let strides = |side: &Side<'_>| match side.2 {
                true => (side.0.size().1 as isize, 1),
                false => (1, side.0.size().1 as isize),
            };
            let (sa, sb) = (strides(&a), strides(&b));
            let theirs =
                |threads| gemm_crate(threads, [m, n, k], (&fa, sa.0, sa.1), (&fb, sb.0, sb.1));
            let (one, two) = (
                ours::<f32>(&Serial, left, right),
                ours::<f32>(&Two, left, right),
            );
            let (gemm_one, gemm_two) = (theirs(1), theirs(2));
            println!(
                "{name:10} {m:5} x {n:5} x {k:5}: {one:6.1} / {gemm_one:6.1} = {:4.2} ({:3.0} % of peak)   {two:6.1} / {gemm_two:6.1} = {:4.2}   {:6.1} {:6.1}",
                one / gemm_one,
                100.0 * one / peak,
                two / gemm_two,
                ours::<bf16>(&Serial, half_left, half_right),
                ours::<bf16>(&Two, half_left, half_right),
            );
        };
        sides("y = x W'", [t, n, k], (&x, &xh, false), (&w, &wh, false));
        sides("dx = dy W", [t, k, n], (&dy, &dyh, false), (&w, &wh, true));
        sides("dW = dy' x", [n, k, t], (&dy, &dyh, true), (&x, &xh, true));
    }
}
