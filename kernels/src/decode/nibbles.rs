//! 4-bit codes -> values of a table of 16, times a scale: the format of NF4 and FP4, by shuffles.
#![allow(unsafe_code)] // Vector instructions behind a detected CPU feature.

use espalier_interface::format::BitOrder;

/// Writes `table[code] * scale` for the elements from `flat` on.
pub fn decode(
    bytes: &[u8],
    flat: usize,
    order: BitOrder,
    table: &[f32; 16],
    scale: f32,
    out: &mut [f32],
) {
    let value = |code: u8| table[usize::from(code)] * scale;
    let [first, second] = match order {
        BitOrder::HighFirst => [4, 0],
        BitOrder::LowFirst => [0, 4],
    };
    let lead = (flat % 2).min(out.len());
    let (head, rest) = out.split_at_mut(lead);
    if let Some(out) = head.first_mut() {
        *out = value((bytes[flat / 2] >> second) & 15);
    }
    let (pairs, odd) = rest.as_chunks_mut::<2>();
    let from = (flat + lead) / 2;
    let whole = &bytes[from..from + pairs.len()];
    let done = wide(whole, order, table, scale, pairs);
    for (pair, &byte) in pairs[done..].iter_mut().zip(&whole[done..]) {
        *pair = [value((byte >> first) & 15), value((byte >> second) & 15)];
    }
    if let Some(out) = odd.first_mut() {
        *out = value((bytes[from + pairs.len()] >> first) & 15);
    }
}

/// Decodes as many whole bytes as fit this CPU's vectors, and returns how many.
#[cfg(target_arch = "x86_64")]
fn wide(
    bytes: &[u8],
    order: BitOrder,
    table: &[f32; 16],
    scale: f32,
    out: &mut [[f32; 2]],
) -> usize {
    assert!(bytes.len() == out.len(), "a byte is a pair");
    if crate::simd::has_avx512() {
        // SAFETY: the feature was detected on this CPU; both slices have the same length.
        unsafe { x86::avx512(bytes, order, table, scale, out) }
    } else if crate::simd::has_avx2() {
        // SAFETY: as above.
        unsafe { x86::avx2(bytes, order, table, scale, out) }
    } else {
        0
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn wide(_: &[u8], _: BitOrder, _: &[f32; 16], _: f32, _: &mut [[f32; 2]]) -> usize {
    0
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use espalier_interface::format::BitOrder;

    /// # Safety
    /// The CPU must have AVX-512F; `bytes` and `out` must be of one length.
    #[target_feature(enable = "avx512f")]
    pub unsafe fn avx512(
        bytes: &[u8],
        order: BitOrder,
        table: &[f32; 16],
        scale: f32,
        out: &mut [[f32; 2]],
    ) -> usize {
        let steps = bytes.len() / 16;
        let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        let high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
        // SAFETY: the table has 16 values.
        let table = unsafe { _mm512_loadu_ps(table.as_ptr()) };
        let scale = _mm512_set1_ps(scale);
        for step in 0..steps {
            // SAFETY: bytes 16 step .. 16 step + 16 lie in the slice.
            let packed = unsafe { _mm_loadu_si128(bytes.as_ptr().add(16 * step).cast()) };
            let packed = _mm512_cvtepu8_epi32(packed);
            // Shuffles read the low 4 bits of an index.
            let upper = _mm512_permutexvar_ps(_mm512_srli_epi32::<4>(packed), table);
            let lower = _mm512_permutexvar_ps(packed, table);
            let (upper, lower) = (_mm512_mul_ps(upper, scale), _mm512_mul_ps(lower, scale));
            let (first, second) = match order {
                BitOrder::HighFirst => (upper, lower),
                BitOrder::LowFirst => (lower, upper),
            };
            let to = out.as_mut_ptr().cast::<f32>();
            // SAFETY: elements 32 step .. 32 step + 32 lie in the slice.
            unsafe {
                let to = to.add(32 * step);
                _mm512_storeu_ps(to, _mm512_permutex2var_ps(first, low, second));
                _mm512_storeu_ps(to.add(16), _mm512_permutex2var_ps(first, high, second));
            }
        }
        16 * steps
    }

    /// # Safety
    /// The CPU must have AVX2; `bytes` and `out` must be of one length.
    #[target_feature(enable = "avx2")]
    pub unsafe fn avx2(
        bytes: &[u8],
        order: BitOrder,
        table: &[f32; 16],
        scale: f32,
        out: &mut [[f32; 2]],
    ) -> usize {
        let steps = bytes.len() / 8;
        // SAFETY: the table has 16 values.
        let (small, large) = unsafe {
            (
                _mm256_loadu_ps(table.as_ptr()),
                _mm256_loadu_ps(table.as_ptr().add(8)),
            )
        };
        let scale = _mm256_set1_ps(scale);
        let look = |codes: __m256i| {
            // Shuffles read the low 3 bits of an index, the blend the sign: bit 3 moved there.
            let from_large = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(codes));
            let (a, b) = (
                _mm256_permutevar8x32_ps(small, codes),
                _mm256_permutevar8x32_ps(large, codes),
            );
            _mm256_mul_ps(_mm256_blendv_ps(a, b, from_large), scale)
        };
        for step in 0..steps {
            // SAFETY: bytes 8 step .. 8 step + 8 lie in the slice.
            let packed = unsafe { _mm_loadl_epi64(bytes.as_ptr().add(8 * step).cast()) };
            let packed = _mm256_cvtepu8_epi32(packed);
            let (upper, lower) = (look(_mm256_srli_epi32::<4>(packed)), look(packed));
            let (first, second) = match order {
                BitOrder::HighFirst => (upper, lower),
                BitOrder::LowFirst => (lower, upper),
            };
            let (a, b) = (
                _mm256_unpacklo_ps(first, second),
                _mm256_unpackhi_ps(first, second),
            );
            let to = out.as_mut_ptr().cast::<f32>();
            // SAFETY: elements 16 step .. 16 step + 16 lie in the slice.
            unsafe {
                let to = to.add(16 * step);
                _mm256_storeu_ps(to, _mm256_permute2f128_ps::<0x20>(a, b));
                _mm256_storeu_ps(to.add(8), _mm256_permute2f128_ps::<0x31>(a, b));
            }
        }
        8 * steps
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        type Wide = unsafe fn(&[u8], BitOrder, &[f32; 16], f32, &mut [[f32; 2]]) -> usize;

        #[test]
        fn every_instruction_set_gives_the_same() {
            let bytes: Vec<u8> = (0..=255).collect();
            let table: [f32; 16] = std::array::from_fn(|i| i as f32 - 7.5);
            let mut kernels: Vec<Wide> = Vec::new();
            if crate::simd::has_avx512() {
                kernels.push(avx512);
            }
            if crate::simd::has_avx2() {
                kernels.push(avx2);
            }
            for kernel in kernels {
                for (order, shifts) in [(BitOrder::HighFirst, [4, 0]), (BitOrder::LowFirst, [0, 4])]
                {
                    let mut out = [[0.0f32; 2]; 256];
                    // SAFETY: detected above; both slices are 256 long.
                    let done = unsafe { kernel(&bytes, order, &table, 0.3, &mut out) };
                    assert_eq!(done, 256);
                    for (byte, pair) in bytes.iter().zip(out) {
                        let expected = shifts.map(|s| table[usize::from((byte >> s) & 15)] * 0.3);
                        assert_eq!(pair, expected);
                    }
                }
            }
        }
    }
}
