//! An initial distribution -> elements drawn on the host, with the bits of the op `init` on `cpu`.

use espalier_interface::random::{self, Purpose};
use espalier_interface::{DType, Init};

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
