//! A loop -> the same loop compiled for the widest vectors of the machine it runs on.
//!
//! Wider vectors never change a result. The compiler neither contracts `a * b + c` nor reorders
//! sums, and kernels that sum in lanes fix the number of lanes.
#![allow(unsafe_code)] // Calls of functions compiled for detected CPU features.

#[cfg(target_arch = "x86_64")]
use std::sync::atomic::{AtomicU8, Ordering};

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

/// Asks for the line of an address, wherever it is, in the first-level cache.
#[inline(always)]
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
pub fn prefetch_line<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which no address makes fail.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
}

/// Features of a CPU, each with those before it: kernels ask for them row by row.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
#[repr(u8)]
enum Features {
    Baseline = 1,
    Avx2,
    Avx512,
    Avx512Bf16,
    Avx512Bf16Vbmi,
}

/// True where this CPU has them. It is asked once.
#[cfg(target_arch = "x86_64")]
#[inline]
fn has(features: Features) -> bool {
    static FOUND: AtomicU8 = AtomicU8::new(0);
    let found = match FOUND.load(Ordering::Relaxed) {
        0 => {
            let found = find() as u8;
            FOUND.store(found, Ordering::Relaxed);
            found
        }
        found => found,
    };
    found >= features as u8
}

#[cfg(target_arch = "x86_64")]
#[cold]
fn find() -> Features {
    let has_avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    let has_avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    match (has_avx2, has_avx512) {
        (false, _) => Features::Baseline,
        (_, false) => Features::Avx2,
        _ if !is_x86_feature_detected!("avx512bf16") => Features::Avx512,
        _ if !is_x86_feature_detected!("avx512vbmi") => Features::Avx512Bf16,
        _ => Features::Avx512Bf16Vbmi,
    }
}

/// True where the CPU has the AVX-512 features of `vectorized`.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn has_avx512() -> bool {
    has(Features::Avx512)
}

/// True where the CPU has those of [`has_avx512`] and AVX-512-BF16.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn has_avx512_bf16() -> bool {
    has(Features::Avx512Bf16)
}

/// True where the CPU has those of [`has_avx512_bf16`] and AVX-512-VBMI.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn has_avx512_bf16_and_vbmi() -> bool {
    has(Features::Avx512Bf16Vbmi)
}

/// True where the CPU has AVX2, FMA and F16C.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn has_avx2() -> bool {
    has(Features::Avx2)
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
