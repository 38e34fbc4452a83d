//! Weights to test quantizers with, drawn from the interface's own random numbers, so that they are
//! the same on every machine.
//!
//! All are `[N, M]` row major.

use espalier_interface::random::{Purpose, key, normal, philox};

/// Normal numbers of standard deviation `std`.
pub fn gaussian(shape: [u64; 2], std: f32, seed: u64) -> Vec<f32> {
    let key = key(seed, Purpose::SYNTHETIC, 0);
    let elements = (shape[0] * shape[1]) as usize;
    let mut weight = Vec::with_capacity(elements + 4);
    for block in 0..elements.div_ceil(4) {
        let words = philox(key, [block as u32, 0, 0, 0]);
        weight.extend(normal([words[0], words[1]]));
        weight.extend(normal([words[2], words[3]]));
    }
    weight.truncate(elements);
    weight.iter_mut().for_each(|x| *x *= std);
    weight
}

/// Weights like trained ones: normal, with a standard deviation that changes every few elements,
/// and a few outliers.
pub fn ordinary(shape: [u64; 2], seed: u64) -> Vec<f32> {
    let mut weight = gaussian(shape, 0.02, seed);
    for (index, x) in weight.iter_mut().enumerate() {
        *x *= 1.0 + (index / 24 % 5) as f32;
        if index % 331 == 7 {
            *x *= 6.0;
        }
    }
    weight
}

/// Random signs, the first two of every `block_of` elements opposite, each times the `size_of` its
/// block.
pub fn signs(
    shape: [u64; 2],
    block_of: impl Fn(u64, u64) -> u64,
    size_of: impl Fn(u64) -> f32,
) -> Vec<f32> {
    let random = gaussian(shape, 1.0, 11);
    let mut seen = std::collections::HashMap::new();
    let mut weight = Vec::with_capacity(random.len());
    for row in 0..shape[0] {
        for col in 0..shape[1] {
            let block = block_of(row, col);
            let place: &mut u64 = seen.entry(block).or_default();
            let drawn = random[weight.len()];
            let sign = match *place {
                0 => 1.0,
                1 => -1.0,
                _ => drawn.signum(),
            };
            *place += 1;
            weight.push(sign * size_of(block));
        }
    }
    weight
}
