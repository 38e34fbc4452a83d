//! A loop -> the same loop compiled for the widest vectors of the machine it runs on.
//!
//! Wider vectors never change a result. The compiler neither contracts `a * b + c` nor reorders
//! sums, and kernels that sum in lanes fix the number of lanes.
#![allow(unsafe_code)] // Calls of functions compiled for detected CPU features.

/// Runs `body`, compiled for AVX-512, AVX2 or the baseline, whichever this CPU has.
///
/// Mark the closure `#[inline(always)]` so that its loops are compiled too, and `move` where it
/// reads scalars. For the compiler, a scalar read through a reference may change with each stored
/// value, which prevents vectorisation.
#[inline(always)]
pub fn vectorized<R>(body: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        if has_avx512() {
            // SAFETY: the features were detected on this CPU.
            return unsafe { with_avx512(body) };
        }
        if has_avx2() {
            // SAFETY: as above.
            return unsafe { with_avx2(body) };
        }
    }
    body()
}

/// Asks for `values`, which will be read soon, in the second-level cache.
#[inline]
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
pub fn prefetch<T>(values: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for byte in (0..size_of_val(values)).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a hint, of an address within the slice.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(values.as_ptr().cast::<i8>().add(byte)) };
    }
}

/// True where the CPU has the AVX-512 features of `vectorized`.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && has_avx2()
}

/// True where the CPU has those of [`has_avx512`] and AVX-512-BF16.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn has_avx512_bf16() -> bool {
    has_avx512() && is_x86_feature_detected!("avx512bf16")
}

/// True where the CPU has those of [`has_avx512_bf16`] and AVX-512-VBMI.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn has_avx512_bf16_and_vbmi() -> bool {
    has_avx512_bf16() && is_x86_feature_detected!("avx512vbmi")
}

/// True where the CPU has AVX2, FMA and F16C.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
}

/// # Safety
/// The CPU must have the features named here.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn with_avx512<R>(body: impl FnOnce() -> R) -> R {
    body()
}

/// # Safety
/// The CPU must have the features named here.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn with_avx2<R>(body: impl FnOnce() -> R) -> R {
    body()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_the_plain_loop() {
        let x: Vec<f32> = (0..1000).map(|i| i as f32 * 0.37 - 90.0).collect();
        let plain: Vec<f32> = x
            .iter()
            .map(|&v| v * v + crate::element::exp_f32(v))
            .collect();
        let mut wide = vec![0.0; x.len()];
        vectorized(
            #[inline(always)]
            || {
                for (y, &v) in wide.iter_mut().zip(&x) {
                    *y = v * v + crate::element::exp_f32(v);
                }
            },
        );
        assert_eq!(plain, wide);
    }
}
