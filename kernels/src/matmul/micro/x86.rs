//! Micro-kernels in the vector instructions of x86-64.
//!
//! Besides its multiply-adds, a step takes instructions that load, broadcast, ask for lines and
//! count. A core issues a few of all kinds in a cycle, and fewer while another thread runs on it.
//! So some steps are counted at once, and AVX-512 in f32 broadcasts every other row's element by
//! the multiply-adds themselves.
#![allow(unsafe_code)] // Vector intrinsics and raw panels.

use std::arch::asm;
use std::arch::x86_64::*;

use super::{COLS, LINE, LYING, Strides, Update, strides};

/// Bytes between what kernels with AVX-512 read and ask for: a page, since a processor asks by
/// itself for lines of the same page alone. Panels lie in the second-level cache or beyond.
const AHEAD: usize = 4096;
/// Steps for which a kernel asks for one row of its tile, and for the next line of each row of the
/// left operand: those of a line of f32.
const BLOCK: usize = LINE / size_of::<f32>();
/// Steps of a block that are counted at once.
const UNROLLED: usize = 4;

/// A micro-kernel, which asks for the right panel's elements `$ahead` of those that it reads; for
/// none with 0. `$multiply` multiplies rows by vectors of the right panel.
macro_rules! kernel {
    ($name:ident, $step:ident, $features:literal, $scalar:ty, $vector:ty, $lanes:literal, $ahead:expr,
     $multiply:ident, $zero:ident $load:ident $store:ident $add:ident) => {
        /// Adds the products of step `AT` of the operands to `sums`.
        ///
        /// # Safety
        /// The CPU has the features; the operands have the step.
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn $step<const MR: usize, const NV: usize, const LEFT: usize, const AT: usize>(
            left: (*const $scalar, Strides),
            (right, right_step): (*const $scalar, usize),
            sums: &mut [[$vector; NV]; MR],
        ) {
            let right = right.wrapping_add(AT * right_step);
            let mut lanes = [$zero(); NV];
            for v in 0..NV {
                // SAFETY: a vector of this step.
                lanes[v] = unsafe { $load(right.wrapping_add(v * $lanes)) };
                if LEFT == COLS && (v * $lanes * size_of::<$scalar>()).is_multiple_of(LINE) {
                    // The next columns.
                    let next = right.wrapping_add((NV + v) * $lanes);
                    _mm_prefetch::<_MM_HINT_T0>(next.cast());
                }
                if LEFT != COLS && $ahead > 0 {
                    let later = right.wrapping_add(v * $lanes + $ahead);
                    _mm_prefetch::<_MM_HINT_T0>(later.cast());
                }
            }
            // SAFETY: the caller's promises.
            unsafe { $multiply::<MR, NV, LEFT, AT>(left, &lanes, sums) };
        }

        /// # Safety
        /// The CPU has the features; panels, or rows as far apart as `LEFT` says, hold `depth`
        /// steps; the tile has `MR` rows of `NV` vectors.
        #[target_feature(enable = $features)]
        pub(in super::super) unsafe fn $name<
            const MR: usize,
            const NV: usize,
            const LEFT: usize,
        >(
            depth: usize,
            (mut left, named): (*const $scalar, Strides),
            mut right: *const $scalar,
            tile: *mut $scalar,
            stride: usize,
            update: Update,
        ) {
            let apart @ [row_stride, step_stride] = strides(MR, LEFT, named);
            let right_step = if LEFT == COLS { named[1] } else { NV * $lanes };
            let ask_for_sums = |row: usize| {
                let out = tile.wrapping_add(row * stride);
                _mm_prefetch::<_MM_HINT_T0>(out.cast());
                _mm_prefetch::<_MM_HINT_T0>(out.wrapping_add(NV * $lanes - 1).cast());
            };
            // One row a block leaves room for lines of the panels; those without a block first.
            for row in depth / BLOCK..MR {
                ask_for_sums(row);
            }
            // The next line of each row, one a step; or that of the next rows where they are
            // columns.
            let later_stride = if step_stride == 1 {
                row_stride
            } else {
                step_stride
            };
            let ask_for_left = |block: *const $scalar, step: usize| {
                if LEFT == LYING {
                    let later = block.wrapping_add(LINE / size_of::<$scalar>());
                    _mm_prefetch::<_MM_HINT_T0>(later.wrapping_add(step * later_stride).cast());
                }
            };
            let mut sums = [[$zero(); NV]; MR];
            // SAFETY: the operands have these steps.
            unsafe {
                for block in 0..depth / BLOCK {
                    if block < MR {
                        ask_for_sums(block);
                    }
                    let start = left;
                    for step in (0..BLOCK).step_by(UNROLLED) {
                        (step..step + UNROLLED).for_each(|step| ask_for_left(start, step));
                        $step::<MR, NV, LEFT, 0>((left, apart), (right, right_step), &mut sums);
                        $step::<MR, NV, LEFT, 1>((left, apart), (right, right_step), &mut sums);
                        $step::<MR, NV, LEFT, 2>((left, apart), (right, right_step), &mut sums);
                        $step::<MR, NV, LEFT, 3>((left, apart), (right, right_step), &mut sums);
                        left = left.wrapping_add(UNROLLED * step_stride);
                        right = right.wrapping_add(UNROLLED * right_step);
                    }
                }
                let start = left;
                for step in 0..depth % BLOCK {
                    ask_for_left(start, step);
                    $step::<MR, NV, LEFT, 0>((left, apart), (right, right_step), &mut sums);
                    left = left.wrapping_add(step_stride);
                    right = right.wrapping_add(right_step);
                }
            }
            for row in 0..MR {
                for v in 0..NV {
                    // SAFETY: a vector of the tile.
                    unsafe {
                        let out = tile.add(row * stride + v * $lanes);
                        let sum = match update {
                            Update::Overwrite => sums[row][v],
                            Update::Accumulate => $add($load(out), sums[row][v]),
                        };
                        $store(out, sum);
                    }
                }
            }
        }
    };
}

/// Adds the products of a step's elements of the left operand, broadcast, and vectors of the right
/// one to `sums`.
macro_rules! multiply {
    ($name:ident, $features:literal, $scalar:ty, $vector:ty, $splat:ident $fma:ident) => {
        /// # Safety
        /// The CPU has the features; the left operand has step `AT`.
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn $name<const MR: usize, const NV: usize, const LEFT: usize, const AT: usize>(
            (left, [row_stride, step_stride]): (*const $scalar, Strides),
            lanes: &[$vector; NV],
            sums: &mut [[$vector; NV]; MR],
        ) {
            for row in 0..MR {
                // SAFETY: an element of this step.
                let x = unsafe { $splat(*left.add(AT * step_stride + row * row_stride)) };
                for v in 0..NV {
                    sums[row][v] = $fma(x, lanes[v], sums[row][v]);
                }
            }
        }
    };
}

multiply!(multiply_lying_f32, "avx512f", f32, __m512, _mm512_set1_ps _mm512_fmadd_ps);
multiply!(multiply_avx512_f64, "avx512f", f64, __m512d, _mm512_set1_pd _mm512_fmadd_pd);
multiply!(multiply_avx2_f32, "avx2,fma", f32, __m256, _mm256_set1_ps _mm256_fmadd_ps);
multiply!(multiply_avx2_f64, "avx2,fma", f64, __m256d, _mm256_set1_pd _mm256_fmadd_pd);
multiply!(multiply_pairs, "avx512f,avx512bf16", f32, __m512, _mm512_set1_ps dot_pairs);

/// Bytes from the left operand to the element of `row` in step `step`, where calls name no strides.
const fn offset<S>(rows: usize, left: usize, step: usize, row: usize) -> usize {
    let [row_stride, step_stride] = strides(rows, left, [0, 0]);
    (step * step_stride + row * row_stride) * size_of::<S>()
}

/// The rows of [`multiply_avx512_f32`]. Compilers broadcast an element once for both vectors, by an
/// instruction of its own. Here the multiply-adds of every other row broadcast its element. In all
/// rows they would load more than two elements a cycle, which is what some cores can.
macro_rules! multiply_rows {
    ($sums:ident, $lanes:ident, $left:ident, $($row:literal)+) => {$(
        if $row < MR && (NV == 1 || $row % 2 == 0) {
            for v in 0..NV {
                asm!(
                    "vfmadd231ps {sum}, {lanes}, dword ptr [{left} + {at}]{{1to16}}",
                    sum = inout(zmm_reg) $sums[$row][v], lanes = in(zmm_reg) $lanes[v],
                    left = in(reg) $left, at = const offset::<f32>(MR, LEFT, AT, $row),
                    options(pure, readonly, nostack, preserves_flags),
                );
            }
        } else if $row < MR {
            asm!(
                "vbroadcastss {x}, dword ptr [{left} + {at}]",
                "vfmadd231ps {sum}, {lanes}, {x}",
                "vfmadd231ps {sum1}, {lanes1}, {x}",
                x = out(zmm_reg) _,
                sum = inout(zmm_reg) $sums[$row][0], lanes = in(zmm_reg) $lanes[0],
                sum1 = inout(zmm_reg) $sums[$row][1], lanes1 = in(zmm_reg) $lanes[1],
                left = in(reg) $left, at = const offset::<f32>(MR, LEFT, AT, $row),
                options(pure, readonly, nostack, preserves_flags),
            );
        }
    )+};
}

/// As [`multiply_lying_f32`], for all operands.
///
/// # Safety
/// As [`multiply_lying_f32`].
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn multiply_avx512_f32<
    const MR: usize,
    const NV: usize,
    const LEFT: usize,
    const AT: usize,
>(
    (left, apart): (*const f32, Strides),
    lanes: &[__m512; NV],
    sums: &mut [[__m512; NV]; MR],
) {
    // SAFETY: elements of this step.
    unsafe {
        if LEFT == LYING {
            return multiply_lying_f32::<MR, NV, LEFT, AT>((left, apart), lanes, sums);
        }
        const { assert!(MR <= 14, "these rows are multiplied") };
        multiply_rows!(sums, lanes, left, 0 1 2 3 4 5 6 7 8 9 10 11 12 13);
    }
}

kernel!(avx512_f32, avx512_f32_step, "avx512f", f32, __m512, 16, AHEAD / size_of::<f32>(),
    multiply_avx512_f32, _mm512_setzero_ps _mm512_loadu_ps _mm512_storeu_ps _mm512_add_ps);
kernel!(avx512_f64, avx512_f64_step, "avx512f", f64, __m512d, 8, AHEAD / size_of::<f64>(),
    multiply_avx512_f64, _mm512_setzero_pd _mm512_loadu_pd _mm512_storeu_pd _mm512_add_pd);
kernel!(avx2_f32, avx2_f32_step, "avx2,fma", f32, __m256, 8, 0,
    multiply_avx2_f32, _mm256_setzero_ps _mm256_loadu_ps _mm256_storeu_ps _mm256_add_ps);
kernel!(avx2_f64, avx2_f64_step, "avx2,fma", f64, __m256d, 4, 0,
    multiply_avx2_f64, _mm256_setzero_pd _mm256_loadu_pd _mm256_storeu_pd _mm256_add_pd);
kernel!(avx512_pairs, avx512_pairs_step, "avx512f,avx512bf16", f32, __m512, 16, 0,
    multiply_pairs, _mm512_setzero_ps _mm512_loadu_ps _mm512_storeu_ps _mm512_add_ps);

/// `sum` plus the products of both elements of each pair.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
pub(in super::super) fn dot_pairs(a: __m512, b: __m512, sum: __m512) -> __m512 {
    // SAFETY: `__m512bh` is the same 512 bits, all of them valid.
    let [a, b] = [a, b].map(|pairs| unsafe { std::mem::transmute(pairs) });
    _mm512_dpbf16_ps(sum, a, b)
}
