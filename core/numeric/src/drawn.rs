//! An initial distribution -> elements drawn on the host, with the bits of the op `init` on `cpu`.

use std::sync::{Mutex, PoisonError};

use espalier_interface::random::{self, Purpose};
use espalier_interface::{DType, Init, Services};

/// Elements that a thread draws at once, a multiple of 4.
const PART: usize = 1 << 14;

/// Elements of a param before its first step, drawn by the numbers of seed and param.
pub struct Drawn {
    init: Init,
    key: [u32; 2],
    param: u32,
}

impl Drawn {
    /// The elements of param number `param` under the run's `seed`.
    ///
    /// # Panics
    /// On a param that begins from its weight, or as [`torch_uniform`](crate::torch_uniform) draws.
    pub fn new(init: Init, seed: u64, param: u32) -> Self {
        assert!(init != Init::FromWeight, "its weight has its values");
        let in_order = matches!(init, Init::TorchUniform { .. });
        assert!(!in_order, "its numbers come one after the other");
        Drawn {
            init,
            key: random::key(seed, Purpose::INIT, 0),
            param,
        }
    }

    /// Writes the elements from `first` on, a multiple of 4, to `out` as little-endian `dtype`, on
    /// the threads of `services`.
    ///
    /// # Panics
    /// On bytes that are not whole elements.
    pub fn write(&self, first: u64, dtype: DType, out: &mut [u8], services: &dyn Services) {
        match dtype {
            DType::F64 => self.draw(first, out, services, f64::to_le_bytes),
            DType::F32 => self.draw(first, out, services, |x| (x as f32).to_le_bytes()),
            DType::BF16 => self.draw(first, out, services, |x| {
                half::bf16::from_f32(x as f32).to_le_bytes()
            }),
            _ => self.draw(first, out, services, |x| {
                half::f16::from_f32(x as f32).to_le_bytes()
            }),
        }
    }

    fn draw<const N: usize>(
        &self,
        first: u64,
        out: &mut [u8],
        services: &dyn Services,
        store: impl Fn(f64) -> [u8; N] + Sync,
    ) {
        let (elements, rest) = out.as_chunks_mut::<N>();
        assert!(rest.is_empty(), "bytes of whole elements");
        self.parts(first, elements, services, store);
    }

    /// Draws a whole param into `out` as f32, on the threads of `services`.
    pub fn fill(&self, out: &mut [f32], services: &dyn Services) {
        self.parts(0, out, services, |x| x as f32);
    }

    fn parts<T: Send>(
        &self,
        first: u64,
        out: &mut [T],
        services: &dyn Services,
        store: impl Fn(f64) -> T + Sync,
    ) {
        // A lock for each part, which one call takes once.
        let parts: Vec<_> = out.chunks_mut(PART).map(Mutex::new).collect();
        services.parallel_for(parts.len(), &|index| {
            let mut part = parts[index].lock().unwrap_or_else(PoisonError::into_inner);
            let first = (first + (index * PART) as u64) / 4;
            for (block, out) in (first..).zip(part.chunks_mut(4)) {
                let drawn = self.block(block);
                out.iter_mut()
                    .zip(drawn)
                    .for_each(|(out, x)| *out = store(x));
            }
        });
    }

    /// Elements `4 block` to `4 block + 3`.
    #[inline]
    fn block(&self, block: u64) -> [f64; 4] {
        let words = || random::philox(self.key, [block as u32, self.param, 0, 0]);
        match self.init {
            Init::Zeros => [0.0; 4],
            Init::Ones => [1.0; 4],
            Init::Constant { value } => [value; 4],
            Init::Uniform { bound } => {
                words().map(|word| -bound + (bound + bound) * f64::from(random::uniform(word)))
            }
            Init::FromWeight | Init::TorchUniform { .. } => unreachable!("`new` refuses it"),
            Init::Normal { std } => {
                let [a, b, c, d] = words();
                let ([w, x], [y, z]) = (random::normal([a, b]), random::normal([c, d]));
                // Adding the mean 0 makes -0 a 0, as the op does.
                [w, x, y, z].map(|value| 0.0 + std * f64::from(value))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use espalier_interface::Serial;

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
            Init::Constant { value: 0.1 },
        ] {
            let (drawn, elements) = (Drawn::new(init, 42, 7), 2 * PART + 3);
            let mut bytes = vec![0; 4 * elements];
            let (begin, end) = bytes.split_at_mut(4 * 1024);
            drawn.write(0, DType::F32, begin, &Serial);
            drawn.write(1024, DType::F32, end, &Backwards);
            let mut filled = vec![f32::NAN; elements];
            drawn.fill(&mut filled, &Backwards);
            let filled: Vec<u8> = filled.iter().flat_map(|x| x.to_le_bytes()).collect();
            assert!(filled == bytes, "{init:?}");
        }
    }
}
