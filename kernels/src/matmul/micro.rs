//! Two packed panels -> their product, added into a small tile of the output held in registers.
//!
//! A panel of the left operand is `[depth, rows]`, of the right one `[depth, vectors x lanes]`.
//! Some kernels read rows of the left operand in place of a panel, `[rows, ROW]` or at any strides.
//! Every element of the tile is one chain of fused multiply-adds over the depth. So its bits depend
//! neither on the tile's size nor on the vectors' width.
//!
//! Kernels for bf16 read panels of pairs (`bf16.rs`) in f32's place and have a dot product of two
//! elements as their step.
#![allow(unsafe_code)] // Raw panels.

#[cfg(target_arch = "x86_64")]
mod x86;

use super::bf16_model;
use super::isa::Isa;
#[cfg(target_arch = "x86_64")]
pub(super) use x86::dot_pairs;
#[cfg(target_arch = "x86_64")]
use x86::{avx2_f32, avx2_f64, avx512_f32, avx512_f64, avx512_pairs};

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
/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

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
