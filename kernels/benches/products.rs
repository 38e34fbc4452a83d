//! Products of the shapes that training has -> GFLOP/s, beside the `gemm` crate's and the machine's peak.
#![allow(unsafe_code)] // Calls of the gemm crate.

use std::hint::black_box;

use espalier_interface::Serial;
use espalier_kernels::element::{Element, Real};
use espalier_kernels::matmul::{self, Dense, Isa, Operand, Output, Rows, Update};
use half::bf16;

/// Seconds that this thread has computed: on a busy machine the clock on the wall says little.
fn thread_secs() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// This thread's seconds in the fastest of several runs of a few milliseconds.
fn best(mut body: impl FnMut()) -> f64 {
    let start = thread_secs();
    body();
    let times = (2e-3 / (thread_secs() - start)).ceil().max(1.0) as usize;
    let mut least = f64::INFINITY;
    for _ in 0..7 {
        let start = thread_secs();
        (0..times).for_each(|_| body());
        least = least.min((thread_secs() - start) / times as f64);
    }
    least
}

fn numbers<E: Element>(len: usize) -> Vec<E> {
    let value = |i: usize| E::Acc::from_f64(((i * 7919) % 1009) as f64 / 1009.0 - 0.5);
    (0..len).map(|i| E::store(value(i))).collect()
}

/// GFLOP/s of fused multiply-adds that never leave the registers, on one thread.
fn peak() -> f64 {
    const STEPS: usize = 200_000;
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
    if Isa::detect() == Isa::Avx512 {
        // SAFETY: the feature was detected.
        let secs = best(|| {
            black_box(unsafe { avx512() });
        });
        return (2 * STEPS * 16 * 16) as f64 / secs * 1e-9;
    }
    f64::NAN
}

/// GFLOP/s of `left [m, k] right [n, k]^T` or of its relatives, given by the operands.
fn ours<E: Element>(left: Operand<'_, E::Acc>, right: Operand<'_, E::Acc>) -> f64
where
    E::Acc: matmul::Scalar,
{
    let ((m, k), n) = (left.size(), right.size().0);
    let mut out = vec![E::default(); m * n];
    let mut workspace = vec![0; matmul::workspace_bytes::<E>(1)];
    let secs = best(|| {
        let out = Output {
            values: &mut out,
            stride: n,
            update: Update::Overwrite,
            bias: None,
        };
        matmul::matmul(&Serial, left, right, out, &mut workspace);
    });
    (2 * m * n * k) as f64 / secs * 1e-9
}

/// GFLOP/s of the gemm crate; `a` and `b` are (values, depth stride, other stride).
fn gemm_crate([m, n, k]: [usize; 3], a: (&[f32], isize, isize), b: (&[f32], isize, isize)) -> f64 {
    let mut out = vec![0.0f32; m * n];
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
                gemm::Parallelism::None,
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
    println!("GFLOP/s on one thread: ours / the gemm crate's, f32; ours in bf16");
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
            let one = ours::<f32>(left, right);
            let gemm = gemm_crate([m, n, k], (&fa, sa.0, sa.1), (&fb, sb.0, sb.1));
            let half = ours::<bf16>(half_left, half_right);
            println!(
                "{name:10} {m:5} x {n:5} x {k:5}: {one:6.1} ({:3.0} % of peak) / {gemm:6.1} = {:4.2}   bf16 {half:6.1}",
                100.0 * one / peak,
                one / gemm,
            );
        };
        sides("y = x W'", [t, n, k], (&x, &xh, false), (&w, &wh, false));
        sides("dx = dy W", [t, k, n], (&dy, &dyh, false), (&w, &wh, true));
        sides("dW = dy' x", [n, k, t], (&dy, &dyh, true), (&x, &xh, true));
    }
}
