//! Two packed panels -> their product, added into a small tile of the output held in registers.
//!
//! A panel of the left operand is `[depth, rows]`, of the right one `[depth, vectors x lanes]`.
//! Every element of the tile is one chain of fused multiply-adds over the depth. So its bits depend
//! neither on the tile's size nor on the vectors' width.
#![allow(unsafe_code)] // Vector intrinsics and raw panels.

use super::isa::Isa;

/// How an output's earlier values are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// They are overwritten (and never read).
    Overwrite,
    /// The product is added to them.
    Accumulate,
}

/// `(depth, left panel, right panel, tile, elements from one tile row to the next, update)`.
pub(super) type Kernel<S> = unsafe fn(usize, *const S, *const S, *mut S, usize, Update);

/// The micro-kernels of one scalar and one instruction set.
pub(super) struct Kernels<S: 'static> {
    /// Most rows of a tile.
    pub rows: usize,
    /// Lanes of a vector; a tile is one or two vectors wide.
    pub lanes: usize,
    /// Kernels for `index + 1` rows and one or two vectors.
    pub table: &'static [[Kernel<S>; 2]],
}

/// Kernels with 1 to N rows.
macro_rules! table {
    ($name:ident: $($rows:literal)+) => {
        &[$([$name::<$rows, 1>, $name::<$rows, 2>]),+]
    };
}

/// A micro-kernel in intrinsics.
#[cfg(target_arch = "x86_64")]
macro_rules! vector_kernel {
    ($name:ident, $features:literal, $scalar:ty, $lanes:literal,
     $zero:ident $load:ident $store:ident $splat:ident $fma:ident $add:ident) => {
        /// # Safety
        /// The CPU has the features; panels hold `depth` steps; the tile has `MR` rows of `NV`
        /// vectors.
        #[target_feature(enable = $features)]
        unsafe fn $name<const MR: usize, const NV: usize>(
            depth: usize,
            mut left: *const $scalar,
            mut right: *const $scalar,
            tile: *mut $scalar,
            stride: usize,
            update: Update,
        ) {
            use std::arch::x86_64::*;
            // SAFETY: all addresses are in the panels and the tile that the caller guarantees.
            unsafe {
                for row in 0..MR {
                    _mm_prefetch::<_MM_HINT_T0>(tile.add(row * stride).cast());
                    _mm_prefetch::<_MM_HINT_T0>(tile.add(row * stride + NV * $lanes - 1).cast());
                }
                let mut sums = [[$zero(); NV]; MR];
                for _ in 0..depth {
                    let mut lanes = [$zero(); NV];
                    for v in 0..NV {
                        lanes[v] = $load(right.add(v * $lanes));
                    }
                    for row in 0..MR {
                        let x = $splat(*left.add(row));
                        for v in 0..NV {
                            sums[row][v] = $fma(x, lanes[v], sums[row][v]);
                        }
                    }
                    left = left.add(MR);
                    right = right.add(NV * $lanes);
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
vector_kernel!(avx512_f32, "avx512f", f32, 16,
    _mm512_setzero_ps _mm512_loadu_ps _mm512_storeu_ps _mm512_set1_ps _mm512_fmadd_ps _mm512_add_ps);
#[cfg(target_arch = "x86_64")]
vector_kernel!(avx512_f64, "avx512f", f64, 8,
    _mm512_setzero_pd _mm512_loadu_pd _mm512_storeu_pd _mm512_set1_pd _mm512_fmadd_pd _mm512_add_pd);
#[cfg(target_arch = "x86_64")]
vector_kernel!(avx2_f32, "avx2,fma", f32, 8,
    _mm256_setzero_ps _mm256_loadu_ps _mm256_storeu_ps _mm256_set1_ps _mm256_fmadd_ps _mm256_add_ps);
#[cfg(target_arch = "x86_64")]
vector_kernel!(avx2_f64, "avx2,fma", f64, 4,
    _mm256_setzero_pd _mm256_loadu_pd _mm256_storeu_pd _mm256_set1_pd _mm256_fmadd_pd _mm256_add_pd);

/// A micro-kernel in plain loops, which the compiler vectorises for the build's target.
macro_rules! portable_kernel {
    ($name:ident, $scalar:ty, $lanes:literal) => {
        /// # Safety
        /// Panels hold `depth` steps; the tile has `MR` rows of `NV` vectors.
        unsafe fn $name<const MR: usize, const NV: usize>(
            depth: usize,
            left: *const $scalar,
            right: *const $scalar,
            tile: *mut $scalar,
            stride: usize,
            update: Update,
        ) {
            const FUSED: bool = cfg!(any(target_feature = "fma", target_arch = "aarch64"));
            let mut sums = [[[0.0; $lanes]; NV]; MR];
            for k in 0..depth {
                // SAFETY: step k of both panels.
                let (xs, lanes) = unsafe {
                    (
                        &*left.add(k * MR).cast::<[$scalar; MR]>(),
                        &*right.add(k * NV * $lanes).cast::<[[$scalar; $lanes]; NV]>(),
                    )
                };
                for row in 0..MR {
                    for v in 0..NV {
                        for lane in 0..$lanes {
                            let sum = &mut sums[row][v][lane];
                            *sum = match FUSED {
                                true => xs[row].mul_add(lanes[v][lane], *sum),
                                false => *sum + xs[row] * lanes[v][lane],
                            };
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

portable_kernel!(portable_f32, f32, 4);
portable_kernel!(portable_f64, f64, 2);

#[cfg(target_arch = "x86_64")]
static AVX512_F32: Kernels<f32> = Kernels {
    rows: 14,
    lanes: 16,
    table: table!(avx512_f32: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
};
#[cfg(target_arch = "x86_64")]
static AVX512_F64: Kernels<f64> = Kernels {
    rows: 14,
    lanes: 8,
    table: table!(avx512_f64: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
};
#[cfg(target_arch = "x86_64")]
static AVX2_F32: Kernels<f32> = Kernels {
    rows: 6,
    lanes: 8,
    table: table!(avx2_f32: 1 2 3 4 5 6),
};
#[cfg(target_arch = "x86_64")]
static AVX2_F64: Kernels<f64> = Kernels {
    rows: 6,
    lanes: 4,
    table: table!(avx2_f64: 1 2 3 4 5 6),
};
static PORTABLE_F32: Kernels<f32> = Kernels {
    rows: 4,
    lanes: 4,
    table: table!(portable_f32: 1 2 3 4),
};
static PORTABLE_F64: Kernels<f64> = Kernels {
    rows: 4,
    lanes: 2,
    table: table!(portable_f64: 1 2 3 4),
};

/// The f32 kernels of `isa`.
pub(super) fn kernels_f32(isa: Isa) -> &'static Kernels<f32> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => &AVX512_F32,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => &AVX2_F32,
        _ => &PORTABLE_F32,
    }
}

/// The f64 kernels of `isa`.
pub(super) fn kernels_f64(isa: Isa) -> &'static Kernels<f64> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => &AVX512_F64,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => &AVX2_F64,
        _ => &PORTABLE_F64,
    }
}
