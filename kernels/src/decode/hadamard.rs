//! Runs of values -> their products with a Hadamard matrix, with vectors.
//!
//! The bits are those of `espalier_interface::format::hadamard`: the same sums of two, each rounded
//! once. What is `b - a` there is `b + -a` here, which is the same number.
#![allow(unsafe_code)] // Vector intrinsics.

use espalier_interface::format::hadamard;

use crate::matmul::Isa;
use crate::simd::vectorized;

/// Multiplies each run of `size` values by the Hadamard matrix of that size.
///
/// # Panics
/// Where `size` is no power of two.
pub(super) fn hadamard_runs(isa: Isa, size: usize, values: &mut [f32]) {
    assert!(size.is_power_of_two(), "runs of {size} values");
    match isa.vectors() {
        // SAFETY: `isa` was detected on this CPU.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 if size >= 16 => unsafe { avx512(size, values) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 if size >= 8 => unsafe { avx2(size, values) },
        _ => vectorized(
            #[inline(always)]
            || values.chunks_exact_mut(size).for_each(hadamard),
        ),
    }
}

/// Distances below 16 within a vector, then those between vectors.
///
/// # Safety
/// The CPU has AVX-512 F.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn avx512(size: usize, values: &mut [f32]) {
    use std::arch::x86_64::*;
    // The sign bit of each lane that has the bit `distance`.
    let signs = |distance: u16| {
        let lanes: [i32; 16] = std::array::from_fn(|lane| match lane as u16 & distance {
            0 => 0,
            _ => i32::MIN,
        });
        // SAFETY: 16 numbers.
        unsafe { _mm512_loadu_epi32(lanes.as_ptr()) }
    };
    let signs = [1, 2, 4, 8].map(signs);
    let add = |swapped: __m512, own: __m512, signs: __m512i| {
        let own = _mm512_xor_si512(_mm512_castps_si512(own), signs);
        _mm512_add_ps(swapped, _mm512_castsi512_ps(own))
    };
    for run in values.chunks_exact_mut(size) {
        let (vectors, begin) = (run.len() / 16, run.as_mut_ptr());
        // SAFETY: `vectors` vectors of 16 values, each within the run.
        let at = |vector: usize| unsafe { begin.add(16 * vector) };
        for vector in 0..vectors {
            // SAFETY: a vector of the run.
            let x = unsafe { _mm512_loadu_ps(at(vector)) };
            let x = add(_mm512_permute_ps::<0b1011_0001>(x), x, signs[0]);
            let x = add(_mm512_permute_ps::<0b0100_1110>(x), x, signs[1]);
            let x = add(_mm512_shuffle_f32x4::<0b1011_0001>(x, x), x, signs[2]);
            let x = add(_mm512_shuffle_f32x4::<0b0100_1110>(x, x), x, signs[3]);
            // SAFETY: as above.
            unsafe { _mm512_storeu_ps(at(vector), x) };
        }
        each_pair(vectors, |low, high| {
            // SAFETY: two vectors of the run.
            unsafe {
                let (a, b) = (_mm512_loadu_ps(at(low)), _mm512_loadu_ps(at(high)));
                _mm512_storeu_ps(at(low), _mm512_add_ps(a, b));
                _mm512_storeu_ps(at(high), _mm512_sub_ps(a, b));
            }
        });
    }
}

/// Distances below 8 within a vector, then those between vectors.
///
/// # Safety
/// The CPU has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2(size: usize, values: &mut [f32]) {
    use std::arch::x86_64::*;
    // The sign bit of each lane that has the bit `distance`.
    let signs = |distance: usize| {
        let lanes: [f32; 8] =
            std::array::from_fn(|lane| if lane & distance == 0 { 0.0 } else { -0.0 });
        // SAFETY: 8 numbers.
        unsafe { _mm256_loadu_ps(lanes.as_ptr()) }
    };
    let signs = [1, 2, 4].map(signs);
    let add = |swapped, own, signs| _mm256_add_ps(swapped, _mm256_xor_ps(own, signs));
    for run in values.chunks_exact_mut(size) {
        let (vectors, begin) = (run.len() / 8, run.as_mut_ptr());
        // SAFETY: `vectors` vectors of 8 values, each within the run.
        let at = |vector: usize| unsafe { begin.add(8 * vector) };
        for vector in 0..vectors {
            // SAFETY: a vector of the run.
            let x = unsafe { _mm256_loadu_ps(at(vector)) };
            let x = add(_mm256_permute_ps::<0b1011_0001>(x), x, signs[0]);
            let x = add(_mm256_permute_ps::<0b0100_1110>(x), x, signs[1]);
            let x = add(_mm256_permute2f128_ps::<1>(x, x), x, signs[2]);
            // SAFETY: as above.
            unsafe { _mm256_storeu_ps(at(vector), x) };
        }
        each_pair(vectors, |low, high| {
            // SAFETY: two vectors of the run.
            unsafe {
                let (a, b) = (_mm256_loadu_ps(at(low)), _mm256_loadu_ps(at(high)));
                _mm256_storeu_ps(at(low), _mm256_add_ps(a, b));
                _mm256_storeu_ps(at(high), _mm256_sub_ps(a, b));
            }
        });
    }
}

/// Calls `body` for all pairs of vectors at distances of 1, 2, 4 and so on, in this order.
#[inline(always)]
fn each_pair(vectors: usize, body: impl Fn(usize, usize)) {
    let mut distance = 1;
    while distance < vectors {
        for first in (0..vectors).step_by(2 * distance) {
            for low in first..first + distance {
                body(low, low + distance);
            }
        }
        distance *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of several magnitudes, so that sums round, with zeros of both signs.
    fn numbers(count: usize) -> Vec<f32> {
        (0..count as i32)
            .map(|i| match i % 11 {
                0 => 0.0,
                1 => -0.0,
                _ => ((i * 7919) % 1009 - 504) as f32 * 1.7f32.powi(i % 23 - 11),
            })
            .collect()
    }

    #[test]
    fn each_instruction_set_gives_the_bits_of_the_plain_loops() {
        for &isa in Isa::available() {
            for size in [2, 4, 8, 16, 32, 64, 128, 256, 512] {
                let mut expected = numbers(2 * size);
                let mut found = expected.clone();
                expected.chunks_exact_mut(size).for_each(hadamard);
                hadamard_runs(isa, size, &mut found);
                let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&found), bits(&expected), "{isa:?} {size}");
            }
        }
    }
}
