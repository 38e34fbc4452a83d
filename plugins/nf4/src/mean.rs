//! Numbers -> their mean, added in the order of torch's CPU sum, so that the last bit agrees.
//!
//! The order depends on the count alone. torch with more than one thread splits sums of 32768
//! numbers and more by its thread count; this is its single-thread order.

/// Columns that are added side by side, of the vector and of the scalar path.
const COLUMNS: usize = 4;
/// f32 numbers in one of torch's vectors (it sums with AVX2 width on every x86 CPU).
const LANES: usize = 8;
/// Levels of the cascade.
const LEVELS: usize = 4;

/// The mean of the f32 numbers whose little-endian bytes `x` holds; 0 for none.
///
/// # Source
/// pytorch `aten/src/ATen/native/cpu/SumKernel.cpp`, `vectorized_inner_sum` and `multi_row_sum`.
pub fn mean(x: &[u8]) -> f32 {
    let count = x.len() / 4;
    let sum = match count {
        0 => return 0.0,
        1..LANES => row_sum::<1>(x)[0],
        _ => {
            let (vectors, rest) = x.split_at(count / LANES * LANES * 4);
            let mut sum = 0.0;
            for number in rest.chunks_exact(4) {
                sum += load::<1>(number)[0];
            }
            for partial in row_sum::<LANES>(vectors) {
                sum += partial;
            }
            sum
        }
    };
    sum / count as f32
}

/// A vector of `N` numbers from its bytes.
#[inline(always)]
fn load<const N: usize>(bytes: &[u8]) -> [f32; N] {
    let mut vector = [0.0; N];
    for (number, bytes) in vector.iter_mut().zip(bytes.chunks_exact(4)) {
        *number = f32::from_le_bytes(bytes.try_into().expect("four bytes"));
    }
    vector
}

/// The lane-wise sum of the vectors in `x`, taken as a matrix of `COLUMNS` columns.
fn row_sum<const N: usize>(x: &[u8]) -> [f32; N] {
    let row_bytes = 4 * N * COLUMNS;
    let (matrix, rest) = x.split_at(x.len() / row_bytes * row_bytes);
    let mut columns = cascade::<N>(matrix);
    for vector in rest.chunks_exact(4 * N) {
        add(&mut columns[0], &load(vector));
    }
    let [mut total, others @ ..] = columns;
    for column in &others {
        add(&mut total, column);
    }
    total
}

/// The column sums of the row-major `matrix`: runs of rows are added up, then runs of runs, over
/// four levels.
fn cascade<const N: usize>(matrix: &[u8]) -> [[f32; N]; COLUMNS] {
    let row_bytes = 4 * N * COLUMNS;
    let num_rows = matrix.len() / row_bytes;
    let level_power = (ceil_log2(num_rows) / LEVELS).max(4);
    let run = 1 << level_power;
    let mut levels = [[[0.0; N]; COLUMNS]; LEVELS];
    let (runs, rest) = matrix.split_at(num_rows / run * run * row_bytes);
    for (i, rows) in runs.chunks_exact(run * row_bytes).enumerate() {
        for row in rows.chunks_exact(row_bytes) {
            add_row(&mut levels[0], &load_row(row));
        }
        let done = (i + 1) * run;
        for level in 1..LEVELS {
            let below = std::mem::replace(&mut levels[level - 1], [[0.0; N]; COLUMNS]);
            add_row(&mut levels[level], &below);
            if done & ((run - 1) << (level * level_power)) != 0 {
                break;
            }
        }
    }
    let [mut total, upper @ ..] = levels;
    for row in rest.chunks_exact(row_bytes) {
        add_row(&mut total, &load_row(row));
    }
    for level in &upper {
        add_row(&mut total, level);
    }
    total
}

#[inline(always)]
fn load_row<const N: usize>(bytes: &[u8]) -> [[f32; N]; COLUMNS] {
    std::array::from_fn(|column| load(&bytes[4 * N * column..4 * N * (column + 1)]))
}

fn ceil_log2(n: usize) -> usize {
    if n <= 2 {
        return 1; // as torch's utils::CeilLog2
    }
    (usize::BITS - (n - 1).leading_zeros()) as usize
}

fn add<const N: usize>(sum: &mut [f32; N], x: &[f32; N]) {
    for (s, v) in sum.iter_mut().zip(x) {
        *s += v;
    }
}

fn add_row<const N: usize>(sum: &mut [[f32; N]; COLUMNS], x: &[[f32; N]; COLUMNS]) {
    for (s, v) in sum.iter_mut().zip(x) {
        add(s, v);
    }
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
