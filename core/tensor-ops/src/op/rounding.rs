//! Results of a step -> the numbers of a param's dtype: to the nearest, or up or down by random
//! bits.

use espalier_host_device::Asked;
use espalier_interface::stochastic::{RandomBits, SCALARS};
use espalier_interface::{DType, Result};

use crate::launch::Launch;
use crate::{Compare, Memory, Tensors};

/// Takes 1 off a bf16 significand of 128 to 255: the product is the number before it, or nearer to
/// it than to any other.
const TO_PREVIOUS: f64 = 1.0 - 1.0 / 256.0;
/// Adds 1 to it: the product is nearer to the next number than to any other.
const TO_NEXT: f64 = 1.0 + 1.0 / 256.0 + 1.0 / 4096.0;

/// How an op rounds a param.
#[derive(Clone, Copy)]
pub(super) enum Rounding {
    /// To the nearest, ties to even.
    Nearest,
    /// By the random bits that scalars at these places give.
    Stochastic([usize; 6]),
}

impl Rounding {
    /// That of the requested version.
    pub fn of(asked: &Asked<'_>) -> Result<Self> {
        if asked.request.version < 3 {
            return Ok(Rounding::Nearest);
        }
        Ok(Rounding::Stochastic(asked.scalars(SCALARS)?))
    }

    /// Writes the results of the elements from `begin` on of a launch, `[n]` f32, to `param`.
    pub fn write<L: Tensors>(
        self,
        launch: &Launch<'_, L>,
        results: &L::Tensor,
        begin: usize,
        param: &Memory,
    ) -> Result<()> {
        let Rounding::Stochastic(places) = self else {
            return launch.write(results, param);
        };
        let (random, first) = RandomBits::of_scalars(launch.scalars_at(places));
        let mut bits = vec![0; param.elements()];
        random.fill(first + begin as u64, &mut bits);
        launch.write(&stochastic(launch, results, &bits)?, param)
    }
}

/// `x`, `[n]` f32, as numbers of bf16 by 16 random bits each: those of
/// [`bf16_bits`](espalier_interface::stochastic::bf16_bits), for normal numbers.
fn stochastic<L: Tensors>(
    launch: &Launch<'_, L>,
    x: &L::Tensor,
    bits: &[u16],
) -> Result<L::Tensor> {
    let library = launch.library;
    let narrow = |x: &L::Tensor| launch.rounded(x, DType::BF16);
    let negative = library.compare(Compare::Less, x, &library.full(0.0, &[1], DType::F32)?)?;
    let size = library.choose(&negative, &library.scaled(x, -1.0)?, x)?;
    let nearest = narrow(&size)?;
    let above = library.compare(Compare::Less, &size, &nearest)?;
    let previous = narrow(&library.scaled(&nearest, TO_PREVIOUS)?)?;
    let low = library.choose(&above, &previous, &nearest)?;
    let high = narrow(&library.scaled(&low, TO_NEXT)?)?;
    // Both differences are exact, and one over the other too. Without a distance it is no number,
    // for which no comparison holds.
    let share = library.div(&library.sub(&size, &low)?, &library.sub(&high, &low)?)?;
    let rest = bits.iter().map(|&bits| 1.0 - f32::from(bits) / 65_536.0);
    let rest = library.floats(&rest.collect::<Vec<f32>>(), &[bits.len()])?;
    let up = library.compare(Compare::LessOrEqual, &rest, &share)?;
    let rounded = library.choose(&up, &high, &low)?;
    library.choose(&negative, &library.scaled(&rounded, -1.0)?, &rounded)
}
