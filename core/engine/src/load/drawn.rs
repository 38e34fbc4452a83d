//! An initial distribution -> elements drawn on the host, with the bits of the op `init` on `cpu`.

use std::sync::{Mutex, PoisonError};

use espalier_interface::random::{self, Purpose};
use espalier_interface::{DType, Init, Services};

/// Elements that a thread draws at once, a multiple of 4.
const PART: usize = 1 << 16;

/// Elements of a param before its first step, drawn by the numbers of seed and param.
pub(super) struct Drawn {
    init: Init,
    key: [u32; 2],
    param: u32,
}

impl Drawn {
    /// The elements of param number `param` under the run's `seed`.
    pub(super) fn new(init: Init, seed: u64, param: u32) -> Self {
        Drawn {
            init,
            key: random::key(seed, Purpose::INIT, 0),
            param,
        }
    }

    /// Writes `count` elements from `first` on, a multiple of 4, to `out` as little-endian `dtype`.
    pub(super) fn write(&self, first: u64, count: usize, dtype: DType, out: &mut Vec<u8>) {
        out.clear();
        for block in 0..count.div_ceil(4) {
            let left = count - 4 * block;
            for &number in &self.block(first / 4 + block as u64)[..left.min(4)] {
                store(number, dtype, out);
            }
        }
    }

    /// Draws a whole param into `out` as f32, on the threads of `services`.
    pub(super) fn fill(&self, out: &mut [f32], services: &dyn Services) {
        // A lock for each part, which one call takes once.
        let parts: Vec<_> = out.chunks_mut(PART).map(Mutex::new).collect();
        services.parallel_for(parts.len(), &|index| {
            let mut part = parts[index].lock().unwrap_or_else(PoisonError::into_inner);
            let first = (index * PART / 4) as u64;
            for (block, out) in (first..).zip(part.chunks_mut(4)) {
                let drawn = self.block(block);
                out.iter_mut()
                    .zip(drawn)
                    .for_each(|(out, x)| *out = x as f32);
            }
        });
    }

    /// Elements `4 block` to `4 block + 3`.
    fn block(&self, block: u64) -> [f64; 4] {
        let words = || random::philox(self.key, [block as u32, self.param, 0, 0]);
        match self.init {
            Init::Zeros => [0.0; 4],
            Init::Ones => [1.0; 4],
            Init::Uniform { bound } => {
                words().map(|word| -bound + (bound + bound) * f64::from(random::uniform(word)))
            }
            Init::FromWeight => unreachable!("the loader takes those from their weight"),
            Init::Normal { std } => {
                let [a, b, c, d] = words();
                let ([w, x], [y, z]) = (random::normal([a, b]), random::normal([c, d]));
                // Adding the mean 0 makes -0 a 0, as the op does.
                [w, x, y, z].map(|value| 0.0 + std * f64::from(value))
            }
        }
    }
}

/// Appends a number as `dtype`, through f32 except for f64.
fn store(number: f64, dtype: DType, out: &mut Vec<u8>) {
    let single = number as f32;
    match dtype {
        DType::F64 => out.extend(number.to_le_bytes()),
        DType::F32 => out.extend(single.to_le_bytes()),
        DType::BF16 => out.extend(half::bf16::from_f32(single).to_le_bytes()),
        _ => out.extend(half::f16::from_f32(single).to_le_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls the parts from the last to the first.
    struct Backwards;

    impl Services for Backwards {
        fn threads(&self) -> usize {
            1
        }

        fn parallel_for(&self, count: usize, body: &(dyn Fn(usize) + Sync)) {
            (0..count).rev().for_each(body);
        }
    }

    #[test]
    fn parts_drawn_in_any_order_have_the_numbers_of_one_after_the_other() {
        for init in [
            Init::Normal { std: 0.02 },
            Init::Uniform { bound: 0.5 },
            Init::Ones,
        ] {
            let (drawn, elements) = (Drawn::new(init, 42, 7), 2 * PART + 3);
            let mut bytes = Vec::new();
            drawn.write(0, elements, DType::F32, &mut bytes);
            let mut filled = vec![f32::NAN; elements];
            drawn.fill(&mut filled, &Backwards);
            let filled: Vec<u8> = filled.iter().flat_map(|x| x.to_le_bytes()).collect();
            assert!(filled == bytes, "{init:?}");
        }
    }
}
