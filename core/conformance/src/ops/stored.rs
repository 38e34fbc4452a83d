//! The dtypes of an optimizer's operands by the version of its op, and what a param must hold after
//! it was rounded stochastically.

use espalier_interface::DType;
use espalier_interface::stochastic::{RandomBits, bf16_bits, name_words};

use super::case::Near;
use super::rounding::U;

/// The dtypes of an update's operands, and the version of the op that has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    /// The op's version.
    pub version: u32,
    /// Of the param.
    pub param: DType,
    /// Of the gradient.
    pub gradient: DType,
    /// Of state with an element for each of the param.
    pub state: DType,
}

/// The combinations of a version.
pub(super) const FIRST_VERSION: [Stored; 2] = [
    stored(1, [DType::F32, DType::F32, DType::F32]),
    stored(1, [DType::BF16, DType::F32, DType::F32]),
];
/// As above.
pub(super) const NARROW: [Stored; 3] = [
    stored(2, [DType::BF16, DType::BF16, DType::BF16]),
    stored(2, [DType::F32, DType::BF16, DType::F32]),
    stored(2, [DType::BF16, DType::F32, DType::BF16]),
];
/// As above.
pub(super) const STOCHASTIC: [Stored; 2] = [
    stored(3, [DType::BF16, DType::BF16, DType::BF16]),
    stored(3, [DType::BF16, DType::F32, DType::F32]),
];

const fn stored(version: u32, [param, gradient, state]: [DType; 3]) -> Stored {
    Stored {
        version,
        param,
        gradient,
        state,
    }
}

/// Low and high half of a seed, of a name's hash, and the launch's first element.
const SEED: u64 = 0x1234_5678_9abc_def0;
/// The launch begins within a param, as that of a rank does.
const FIRST: u64 = 3 * 64;

impl Stored {
    /// What is special about a case.
    pub fn words(self) -> String {
        match self.version {
            1 => format!("param {}", self.param),
            _ => format!(
                "param {}, gradient {}, state {}",
                self.param, self.gradient, self.state
            ),
        }
    }

    /// The scalars that follow those of version 1.
    pub fn more_scalars(self) -> Vec<f64> {
        let [low, high] = name_words("a.weight");
        match self.version {
            3 => vec![
                f64::from(SEED as u32),
                f64::from((SEED >> 32) as u32),
                f64::from(low),
                f64::from(high),
                FIRST as f64,
            ],
            _ => Vec::new(),
        }
    }

    /// The param after step `step`: `result` as it is rounded. Where rounding of the result itself
    /// cannot change which of two numbers the random bits choose, that one must be met.
    pub fn param(self, result: Near, step: f64) -> Near {
        if self.version != 3 {
            return result;
        }
        let mut bits = vec![0; result.values.len()];
        RandomBits::new(SEED, step as u64, name_words("a.weight")).fill(FIRST, &mut bits);
        let mut near = Near::default();
        for ((x, bound), bits) in result.values.into_iter().zip(result.bounds).zip(bits) {
            let error = bound + 2.0 * U * x.abs();
            let ends = [x - error, x + error].map(|end| {
                let rounded = bf16_bits(end as f32, bits);
                f64::from(f32::from_bits(u32::from(rounded) << 16))
            });
            let is_sure = ends[0] == ends[1] && ends[0].is_normal();
            near.values.push(if is_sure { ends[0] } else { x });
            near.bounds.push(if is_sure { 0.0 } else { error });
        }
        near
    }
}
