//! Two packed panels -> their product, added into a small tile of the output held in registers.
//!
//! A panel of the left operand is `[depth, rows]`, of the right one `[depth, vectors x lanes]`.
//! Some kernels read rows of the left operand in place of a panel, `[rows, ROW]` or at any strides.
//! Every element of the tile is one chain of fused multiply-adds over the depth. So its bits depend
//! neither on the tile's size nor on the vectors' width.
//!
//! Kernels for bf16 read panels of pairs (`bf16.rs`) in f32's place and have a dot product of two
//! elements as their step.
#![allow(unsafe_code)] // Vector intrinsics and raw panels.

use super::bf16_model;
use super::isa::Isa;

/// How an output's earlier values are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// They are overwritten (and never read).
    Overwrite,
    /// The product is added to them.
    Accumulate,
}

/// Elements from one row of the left operand to the next, where it is read as rows.
pub(crate) const ROW: usize = 128;
/// In its place where it is read as a panel.
const PANEL: usize = 0;
/// In its place where each call names the left operand's strides.
const LYING: usize = 1;
/// In its place where the left operand is a panel and each call names the right one's strides.
const COLS: usize = 2;
/// Bytes between what kernels with AVX-512 read and ask for: a page, since a processor asks by
/// itself for lines of the same page alone. Panels lie in the second-level cache or beyond.
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 4096;
/// Bytes of a cache line.
pub(super) const LINE: usize = 64;
/// Steps for which a kernel asks for one row of its tile, and for the next line of each row of the
/// left operand: those of a line of f32.
#[cfg(target_arch = "x86_64")]
const BLOCK: usize = LINE / size_of::<f32>();

/// The elements from one row of a left operand, or column of a right one, to the next, and from one
/// step to the next.
pub(super) type Strides = [usize; 2];

/// Those of the left operand of a kernel of `rows` rows whose call names `named`.
const fn strides(rows: usize, row: usize, named: Strides) -> Strides {
    match row {
        PANEL | COLS => [1, rows],
        LYING => named,
        row => [row, 1],
    }
}

/// `(depth, left panel or rows and the strides of what lies, right panel or columns, tile, elements
/// from one row to the next, update)`. Only kernels of operands that lie read their strides.
pub(super) type Kernel<S> = unsafe fn(usize, (*const S, Strides), *const S, *mut S, usize, Update);

/// The micro-kernels of one scalar and one instruction set.
pub(super) struct Kernels<S: 'static> {
    /// Most rows of a tile.
    pub rows: usize,
    /// Lanes of a vector; a tile is one or two vectors wide.
    pub lanes: usize,
    /// Kernels for `index + 1` rows and one or two vectors.
    pub table: &'static [[Kernel<S>; 2]],
    /// The same for rows of the left operand, [`ROW`] elements apart.
    pub of_rows: &'static [[Kernel<S>; 2]],
    /// The same for rows at the strides of the call; none where a step is a pair of bf16, which is
    /// packed.
    pub of_lying: &'static [[Kernel<S>; 2]],
    /// The same for panels of rows, and columns of the right operand at the strides of the call.
    pub of_lying_cols: &'static [[Kernel<S>; 2]],
}

/// Kernels with 1 to N rows.
macro_rules! table {
    ($name:ident, $row:ident: $($rows:literal)+) => {
        &[$([$name::<$rows, 1, $row>, $name::<$rows, 2, $row>]),+]
    };
}

/// A micro-kernel in intrinsics, which asks for the right panel's elements `$ahead` of those that
/// it reads; for none with 0.
#[cfg(target_arch = "x86_64")]
macro_rules! vector_kernel {
    ($name:ident, $features:literal, $scalar:ty, $lanes:literal, $ahead:expr,
     $zero:ident $load:ident $store:ident $splat:ident $fma:ident $add:ident) => {
        /// # Safety
        /// The CPU has the features; panels, or rows as far apart as `LEFT` says, hold `depth`
        /// steps; the tile has `MR` rows of `NV` vectors.
        #[target_feature(enable = $features)]
        unsafe fn $name<const MR: usize, const NV: usize, const LEFT: usize>(
            depth: usize,
            (mut left, named): (*const $scalar, Strides),
            mut right: *const $scalar,
            tile: *mut $scalar,
            stride: usize,
            update: Update,
        ) {
            use std::arch::x86_64::*;
            // SAFETY: all addresses are in the panels and the tile that the caller guarantees.
            unsafe {
                let [row_stride, step_stride] = strides(MR, LEFT, named);
                let right_step = if LEFT == COLS { named[1] } else { NV * $lanes };
                let ask_for_sums = |row: usize| {
                    let out = tile.wrapping_add(row * stride);
                    _mm_prefetch::<_MM_HINT_T0>(out.cast());
                    _mm_prefetch::<_MM_HINT_T0>(out.wrapping_add(NV * $lanes - 1).cast());
                };
                // One row a block leaves room for lines of the panels; those without a block first.
                for row in depth.div_ceil(BLOCK)..MR {
                    ask_for_sums(row);
                }
                // The next line of each row, one a step; or that of the next rows where they are
                // columns.
                let later_stride = if step_stride == 1 {
                    row_stride
                } else {
                    step_stride
                };
                let mut sums = [[$zero(); NV]; MR];
                for block in 0..depth.div_ceil(BLOCK) {
                    if block < MR {
                        ask_for_sums(block);
                    }
                    let mut later = left.wrapping_add(LINE / size_of::<$scalar>());
                    for _ in 0..BLOCK.min(depth - block * BLOCK) {
                        if LEFT == LYING {
                            _mm_prefetch::<_MM_HINT_T0>(later.cast());
                            later = later.wrapping_add(later_stride);
                        }
                        let mut lanes = [$zero(); NV];
                        for v in 0..NV {
                            lanes[v] = $load(right.add(v * $lanes));
                            if LEFT == COLS
                                && (v * $lanes * size_of::<$scalar>()).is_multiple_of(LINE)
                            {
                                // The next columns.
                                let next = right.wrapping_add((NV + v) * $lanes);
                                _mm_prefetch::<_MM_HINT_T0>(next.cast());
                            }
                            if LEFT != COLS && $ahead > 0 {
                                let later = right.wrapping_add(v * $lanes + $ahead);
                                _mm_prefetch::<_MM_HINT_T0>(later.cast());
                            }
                        }
                        for row in 0..MR {
                            let x = $splat(*left.add(row * row_stride));
                            for v in 0..NV {
                                sums[row][v] = $fma(x, lanes[v], sums[row][v]);
                            }
                        }
                        left = left.wrapping_add(step_stride);
                        right = right.wrapping_add(right_step);
                    }
                }
                for row in 0..MR {
                    for v in 0..NV {
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

#[cfg(target_arch = "x86_64")]
vector_kernel!(avx512_f32, "avx512f", f32, 16, AHEAD / size_of::<f32>(),
    _mm512_setzero_ps _mm512_loadu_ps _mm512_storeu_ps _mm512_set1_ps _mm512_fmadd_ps _mm512_add_ps);
#[cfg(target_arch = "x86_64")]
vector_kernel!(avx512_f64, "avx512f", f64, 8, AHEAD / size_of::<f64>(),
    _mm512_setzero_pd _mm512_loadu_pd _mm512_storeu_pd _mm512_set1_pd _mm512_fmadd_pd _mm512_add_pd);
#[cfg(target_arch = "x86_64")]
vector_kernel!(avx2_f32, "avx2,fma", f32, 8, 0,
    _mm256_setzero_ps _mm256_loadu_ps _mm256_storeu_ps _mm256_set1_ps _mm256_fmadd_ps _mm256_add_ps);
#[cfg(target_arch = "x86_64")]
vector_kernel!(avx2_f64, "avx2,fma", f64, 4, 0,
    _mm256_setzero_pd _mm256_loadu_pd _mm256_storeu_pd _mm256_set1_pd _mm256_fmadd_pd _mm256_add_pd);

#[cfg(target_arch = "x86_64")]
vector_kernel!(avx512_pairs, "avx512f,avx512bf16", f32, 16, 0,
    _mm512_setzero_ps _mm512_loadu_ps _mm512_storeu_ps _mm512_set1_ps dot_pairs _mm512_add_ps);

/// `sum` plus the products of both elements of each pair.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
pub(super) fn dot_pairs(
    a: std::arch::x86_64::__m512,
    b: std::arch::x86_64::__m512,
    sum: std::arch::x86_64::__m512,
) -> std::arch::x86_64::__m512 {
    // SAFETY: `__m512bh` is the same 512 bits, all of them valid.
    let [a, b] = [a, b].map(|pairs| unsafe { std::mem::transmute(pairs) });
    std::arch::x86_64::_mm512_dpbf16_ps(sum, a, b)
}

/// `a b + sum`, fused where the build's target fuses.
macro_rules! multiply_add {
    ($a:expr, $b:expr, $sum:expr) => {
        if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
            $a.mul_add($b, $sum)
        } else {
            $sum + $a * $b
        }
    };
}

/// A micro-kernel in plain loops, which the compiler vectorises for the build's target.
macro_rules! portable_kernel {
    ($name:ident, $scalar:ty, $lanes:literal, |$x:ident, $y:ident, $to:ident| $step:expr) => {
        /// # Safety
        /// Panels, or rows as far apart as `LEFT` says, hold `depth` steps; the tile has `MR` rows
        /// of `NV` vectors.
        unsafe fn $name<const MR: usize, const NV: usize, const LEFT: usize>(
            depth: usize,
            (left, named): (*const $scalar, Strides),
            right: *const $scalar,
            tile: *mut $scalar,
            stride: usize,
            update: Update,
        ) {
            let [row_stride, step_stride] = strides(MR, LEFT, named);
            let right_step = if LEFT == COLS { named[1] } else { NV * $lanes };
            let mut sums = [[[0.0; $lanes]; NV]; MR];
            for k in 0..depth {
                // SAFETY: step k of both sides.
                let (xs, lanes): ([$scalar; MR], _) = unsafe {
                    (
                        std::array::from_fn(|row| *left.add(k * step_stride + row * row_stride)),
                        &*right.add(k * right_step).cast::<[[$scalar; $lanes]; NV]>(),
                    )
                };
                for row in 0..MR {
                    for v in 0..NV {
                        for lane in 0..$lanes {
                            let sum = &mut sums[row][v][lane];
                            let ($x, $y, $to) = (xs[row], lanes[v][lane], *sum);
                            *sum = $step;
                        }
                    }
                }
            }
            for row in 0..MR {
                for v in 0..NV {
                    for lane in 0..$lanes {
                        // SAFETY: an element of the tile.
                        let out = unsafe { &mut *tile.add(row * stride + v * $lanes + lane) };
                        *out = match update {
                            Update::Overwrite => sums[row][v][lane],
                            Update::Accumulate => *out + sums[row][v][lane],
                        };
                    }
                }
            }
        }
    };
}

portable_kernel!(portable_f32, f32, 4, |a, b, sum| multiply_add!(a, b, sum));
portable_kernel!(portable_f64, f64, 2, |a, b, sum| multiply_add!(a, b, sum));
portable_kernel!(model_pairs, f32, 16, |a, b, sum| bf16_model::dot_pairs(
    a, b, sum
));

#[cfg(target_arch = "x86_64")]
static AVX512_F32: Kernels<f32> = Kernels {
    rows: 14,
    lanes: 16,
    table: table!(avx512_f32, PANEL: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
    of_rows: table!(avx512_f32, ROW: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
    of_lying: table!(avx512_f32, LYING: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
    of_lying_cols: table!(avx512_f32, COLS: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
};
#[cfg(target_arch = "x86_64")]
static AVX512_PAIRS: Kernels<f32> = Kernels {
    rows: 14,
    lanes: 16,
    table: table!(avx512_pairs, PANEL: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
    of_rows: table!(avx512_pairs, ROW: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
    of_lying: &[],
    of_lying_cols: &[],
};
/// Tiles of the shapes of `AVX512_PAIRS`.
static MODEL_PAIRS: Kernels<f32> = Kernels {
    rows: 14,
    lanes: 16,
    table: table!(model_pairs, PANEL: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
    of_rows: table!(model_pairs, ROW: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
    of_lying: &[],
    of_lying_cols: &[],
};
#[cfg(target_arch = "x86_64")]
static AVX512_F64: Kernels<f64> = Kernels {
    rows: 14,
    lanes: 8,
    table: table!(avx512_f64, PANEL: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
    of_rows: table!(avx512_f64, ROW: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
    of_lying: table!(avx512_f64, LYING: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
    of_lying_cols: table!(avx512_f64, COLS: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
};
#[cfg(target_arch = "x86_64")]
static AVX2_F32: Kernels<f32> = Kernels {
    rows: 6,
    lanes: 8,
    table: table!(avx2_f32, PANEL: 1 2 3 4 5 6),
    of_rows: table!(avx2_f32, ROW: 1 2 3 4 5 6),
    of_lying: table!(avx2_f32, LYING: 1 2 3 4 5 6),
    of_lying_cols: table!(avx2_f32, COLS: 1 2 3 4 5 6),
};
#[cfg(target_arch = "x86_64")]
static AVX2_F64: Kernels<f64> = Kernels {
    rows: 6,
    lanes: 4,
    table: table!(avx2_f64, PANEL: 1 2 3 4 5 6),
    of_rows: table!(avx2_f64, ROW: 1 2 3 4 5 6),
    of_lying: table!(avx2_f64, LYING: 1 2 3 4 5 6),
    of_lying_cols: table!(avx2_f64, COLS: 1 2 3 4 5 6),
};
static PORTABLE_F32: Kernels<f32> = Kernels {
    rows: 4,
    lanes: 4,
    table: table!(portable_f32, PANEL: 1 2 3 4),
    of_rows: table!(portable_f32, ROW: 1 2 3 4),
    of_lying: table!(portable_f32, LYING: 1 2 3 4),
    of_lying_cols: table!(portable_f32, COLS: 1 2 3 4),
};
static PORTABLE_F64: Kernels<f64> = Kernels {
    rows: 4,
    lanes: 2,
    table: table!(portable_f64, PANEL: 1 2 3 4),
    of_rows: table!(portable_f64, ROW: 1 2 3 4),
    of_lying: table!(portable_f64, LYING: 1 2 3 4),
    of_lying_cols: table!(portable_f64, COLS: 1 2 3 4),
};

/// The f32 kernels of `isa`; those for pairs of bf16 where it has instructions for them. With
/// tiles, products of pairs are not by these kernels (`tiles.rs`).
#[inline]
pub(super) fn kernels_f32(isa: Isa) -> &'static Kernels<f32> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Bf16 => &AVX512_PAIRS,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => &AVX512_F32,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => &AVX2_F32,
        Isa::Bf16Model => &MODEL_PAIRS,
        Isa::AmxBf16 | Isa::AmxModel => unreachable!("{isa:?} has kernels of another kind"),
        _ => &PORTABLE_F32,
    }
}

/// The f64 kernels of `isa`.
#[inline]
pub(super) fn kernels_f64(isa: Isa) -> &'static Kernels<f64> {
    match isa.vectors() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => &AVX512_F64,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => &AVX2_F64,
        _ => &PORTABLE_F64,
    }
}
