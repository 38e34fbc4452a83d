//! Numbers -> their mean, added in the order of torch's CPU sum, so that the last bit agrees.

use espalier_kernels::cascade::{COLUMNS, Cascade, LANES, join, sum_lanes, sum_vectors};
use espalier_kernels::simd::vectorized;

/// Bytes of an f32.
const WIDTH: usize = size_of::<f32>();

/// The mean of the magnitudes whose f32 bytes, little-endian, `x` holds; 0 for none.
///
/// # Source
/// pytorch `aten/src/ATen/native/cpu/SumKernel.cpp`, `vectorized_inner_sum`.
pub fn mean(x: &[u8]) -> f32 {
    let count = x.len() / WIDTH;
    let sum = match count {
        0 => return 0.0,
        1..LANES => {
            let (mut few, numbers) = ([[0.0]; LANES], x.as_chunks::<WIDTH>().0);
            for (number, bytes) in few.iter_mut().zip(numbers) {
                *number = [f32::from_le_bytes(*bytes)];
            }
            sum_vectors(&few[..count])[0]
        }
        _ => vectorized(
            #[inline(always)]
            || sum(x),
        ),
    };
    sum / count as f32
}

/// The sum of at least a vector of magnitudes, without a copy: a large weight has millions.
#[inline(always)]
fn sum(x: &[u8]) -> f32 {
    let (vectors, tail) = x.as_chunks::<{ WIDTH * LANES }>();
    let (rows, rest) = vectors.as_chunks::<COLUMNS>();
    let mut cascade = Cascade::new(rows.len());
    for row in rows {
        cascade.add_row(&row.map(|bytes| numbers(&bytes)));
    }
    let mut last = [[0.0; LANES]; COLUMNS];
    for (vector, bytes) in last.iter_mut().zip(rest) {
        *vector = numbers(bytes);
    }
    let tail = (numbers(tail), tail.len() / WIDTH);
    sum_lanes(
        join(cascade.total(), &last[..rest.len()]),
        &tail.0[..tail.1],
    )
}

/// The numbers of `bytes`, at most a vector; zeros after them.
#[inline(always)]
fn numbers(bytes: &[u8]) -> [f32; LANES] {
    let mut numbers = [0.0; LANES];
    for (number, bytes) in numbers.iter_mut().zip(bytes.as_chunks().0) {
        *number = f32::from_le_bytes(*bytes);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// torch 2.13.0, one thread, the same bits with AVX-512, AVX2 and neither, of
    /// `i = torch.arange(n); ((i * 2654435761) % 2**32 >> 8).double().div(2**24).float().mean()`.
    #[test]
    fn equals_torch_bit_for_bit() {
        let expected: [(usize, u32); 25] = [
            (1, 0x0000_0000),
            (2, 0x3e9e_3779),
            (5, 0x3edf_444d),
            (7, 0x3ed9_df22),
            (8, 0x3ed3_8453),
            (9, 0x3ef1_bbcb),
            (15, 0x3eeb_4ceb),
            (16, 0x3ee5_4020),
            (17, 0x3ef2_86a9),
            (31, 0x3efe_1d28),
            (32, 0x3ef8_b7bc),
            (33, 0x3efd_3cca),
            (63, 0x3efc_1a22),
            (64, 0x3eff_a6f2),
            (100, 0x3efc_40dc),
            (129, 0x3efb_fc57),
            (500, 0x3eff_bbcd),
            (512, 0x3eff_bbe8),
            (1000, 0x3eff_fce6),
            (4097, 0x3f00_0144),
            (9001, 0x3eff_f323),
            (32_767, 0x3eff_fe8c),
            (40_000, 0x3eff_ff23),
            (200_003, 0x3eff_ffda),
            (1_048_577, 0x3eff_ffe8),
        ];
        for (n, bits) in expected {
            let x: Vec<u8> = (0..n as u32)
                .map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 16_777_216.0)
                .flat_map(f32::to_le_bytes)
                .collect();
            let found = mean(&x).to_bits();
            assert_eq!(found, bits, "n {n}: {found:08x} is not {bits:08x}");
        }
    }

    #[test]
    fn the_mean_of_nothing_is_zero() {
        assert_eq!(mean(&[]), 0.0);
    }
}
