//! f32 or f64 -> the micro-kernels and the transposing copy that a matrix product of it uses.
#![allow(unsafe_code)] // Raw panels.

use half::bf16;

use super::isa::Isa;
use super::micro::{self, Kernels};
use super::transpose;
use crate::element::{Element, Real};

/// A dtype that products are computed in: f32, or f64 in the reference mode.
pub trait Scalar: Real + Element<Acc = Self> + sealed::Packed {}

impl Scalar for f32 {}
impl Scalar for f64 {}

pub(super) mod sealed {
    use half::bf16;

    use super::{Isa, Kernels};

    /// Methods of a scalar for this folder alone.
    pub trait Packed: Sized + 'static {
        #[allow(private_interfaces)]
        fn kernels(isa: Isa) -> &'static Kernels<Self>;

        /// `values` themselves where they are f32.
        fn as_f32(values: &mut [Self]) -> Option<&mut [f32]>;

        /// `out[k * out_stride + i] = from[i * from_stride + k]` for `i < lanes`, `k < depth`.
        ///
        /// Steps are written in order, each as a whole vector (16 elements at most) from `out` on.
        /// So the elements after the last lane of the last step are overwritten too.
        ///
        /// # Safety
        /// The CPU can run `isa`; `lanes` is 1 to the lanes of `isa`'s vectors; `from` holds
        /// `lanes` rows of `depth`; `out` holds `depth` steps and 16 elements more.
        unsafe fn transpose(
            isa: Isa,
            from: (*const Self, usize),
            lanes: usize,
            depth: usize,
            out: (*mut Self, usize),
        );

        /// [`Packed::transpose`] of rows of bf16.
        ///
        /// # Safety
        /// As there.
        unsafe fn transpose_bf16(
            isa: Isa,
            from: (*const bf16, usize),
            lanes: usize,
            depth: usize,
            out: (*mut Self, usize),
        );
    }
}

#[allow(private_interfaces)]
impl sealed::Packed for f32 {
    #[inline]
    fn kernels(isa: Isa) -> &'static Kernels<f32> {
        micro::kernels_f32(isa)
    }

    #[inline]
    fn as_f32(values: &mut [f32]) -> Option<&mut [f32]> {
        Some(values)
    }

    #[inline]
    unsafe fn transpose(
        isa: Isa,
        from: (*const f32, usize),
        lanes: usize,
        depth: usize,
        out: (*mut f32, usize),
    ) {
        // SAFETY: the caller's promises are the callees'.
        unsafe {
            match isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => transpose::avx512_f32(from, lanes, depth, out),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => transpose::avx2_f32(from, lanes, depth, out),
                _ => transpose::portable(from, lanes, 0..depth, out),
            }
        }
    }

    #[inline]
    unsafe fn transpose_bf16(
        isa: Isa,
        from: (*const bf16, usize),
        lanes: usize,
        depth: usize,
        out: (*mut f32, usize),
    ) {
        // SAFETY: the caller's promises are the callees'.
        unsafe {
            match isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => transpose::avx512_bf16(from, lanes, depth, out),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => transpose::avx2_bf16(from, lanes, depth, out),
                _ => transpose::portable(from, lanes, 0..depth, out),
            }
        }
    }
}

#[allow(private_interfaces)]
impl sealed::Packed for f64 {
    #[inline]
    fn kernels(isa: Isa) -> &'static Kernels<f64> {
        micro::kernels_f64(isa)
    }

    #[inline]
    fn as_f32(_values: &mut [f64]) -> Option<&mut [f32]> {
        None
    }

    #[inline]
    unsafe fn transpose(
        _isa: Isa,
        from: (*const f64, usize),
        lanes: usize,
        depth: usize,
        out: (*mut f64, usize),
    ) {
        // SAFETY: the caller's promises are the callee's.
        unsafe { transpose::portable(from, lanes, 0..depth, out) }
    }

    #[inline]
    unsafe fn transpose_bf16(
        _isa: Isa,
        from: (*const bf16, usize),
        lanes: usize,
        depth: usize,
        out: (*mut f64, usize),
    ) {
        // SAFETY: the caller's promises are the callee's.
        unsafe { transpose::portable(from, lanes, 0..depth, out) }
    }
}
