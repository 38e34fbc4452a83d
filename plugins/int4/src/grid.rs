//! The weights of a group -> its grid: the scale and the zero whose codes are nearest to them.
//!
//! A code `q` from 0 to `top` stands for `(q - zero) scale`.

use crate::number::Number;

/// The numbers of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// The distance of neighbouring values.
    pub scale: f32,
    /// The code of the value 0, a whole number from 0 to `top`.
    pub zero: f32,
}

/// Where the ends of a grid are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symmetry {
    /// At the smallest and the largest weight, and at 0 where all have one sign.
    Asymmetric,
    /// At equal distances from 0.
    Symmetric,
}

/// How grids are chosen and stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridSpec {
    /// Bits of a code.
    pub bits: u32,
    /// Where its ends are.
    pub symmetry: Symmetry,
    /// In what a scale is stored.
    pub number: Number,
}

impl GridSpec {
    /// The largest code.
    pub fn top(self) -> f32 {
        ((1u32 << self.bits) - 1) as f32
    }

    /// The grid of weights from `low` to `high`, of which `low` is at most 0 and `high` at least 0.
    ///
    /// # Source
    /// GPTQ, `quant.py` of github.com/IST-DASLab/gptq, `Quantizer.find_params`. Here the scale is
    /// rounded to what is stored before a zero or a code is computed with it.
    pub fn between(self, low: f32, high: f32) -> Grid {
        let top = self.top();
        let (low, high) = match self.symmetry {
            Symmetry::Asymmetric => (low, high),
            Symmetry::Symmetric => (-high.max(-low), high.max(-low)),
        };
        // The difference of two large numbers may overflow, that of their parts does not.
        let exact = high / top - low / top;
        let scale = if exact > 0.0 {
            self.number.rounded(exact).max(self.number.smallest())
        } else {
            1.0
        };
        let zero = match self.symmetry {
            Symmetry::Asymmetric => (-low / scale).round_ties_even().clamp(0.0, top),
            Symmetry::Symmetric => (top + 1.0) / 2.0,
        };
        Grid { scale, zero }
    }

    /// The grid of the weights of a group.
    pub fn of(self, group: &[f32]) -> Grid {
        let [low, high] = ends(group);
        self.between(low, high)
    }

    /// The code nearest to `weight`.
    pub fn code(self, grid: Grid, weight: f32) -> f32 {
        ((weight / grid.scale).round_ties_even() + grid.zero).clamp(0.0, self.top())
    }
}

impl Grid {
    /// What a code stands for.
    pub fn value(self, code: f32) -> f32 {
        (code - self.zero) * self.scale
    }
}

/// The smallest weight or 0, and the largest weight or 0.
pub fn ends(group: &[f32]) -> [f32; 2] {
    let ends = group.iter();
    ends.fold([0.0f32, 0.0f32], |[low, high], &x| {
        [low.min(x), high.max(x)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(symmetry: Symmetry) -> GridSpec {
        GridSpec {
            bits: 4,
            symmetry,
            number: Number::F32,
        }
    }

    #[test]
    fn the_ends_of_a_group_are_values_of_its_grid() {
        let spec = spec(Symmetry::Asymmetric);
        let grid = spec.of(&[-5.0, 2.5, 10.0]);
        assert_eq!(
            grid,
            Grid {
                scale: 1.0,
                zero: 5.0
            }
        );
        let codes = [-5.0, 2.5, 10.0].map(|x| spec.code(grid, x));
        // 2.5 is halfway between two values and takes the even one.
        assert_eq!(codes, [0.0, 7.0, 15.0]);
        assert_eq!(codes.map(|code| grid.value(code)), [-5.0, 2.0, 10.0]);
    }

    #[test]
    fn a_group_of_one_sign_keeps_its_zero_among_the_codes() {
        let grid = spec(Symmetry::Asymmetric).of(&[3.0, 15.0]);
        assert_eq!(
            grid,
            Grid {
                scale: 1.0,
                zero: 0.0
            }
        );
        let grid = spec(Symmetry::Asymmetric).of(&[-15.0, -3.0]);
        assert_eq!(
            grid,
            Grid {
                scale: 1.0,
                zero: 15.0
            }
        );
    }

    #[test]
    fn a_symmetric_grid_has_its_zero_in_the_middle() {
        let spec = spec(Symmetry::Symmetric);
        let grid = spec.of(&[-15.0, 3.0]);
        assert_eq!(
            grid,
            Grid {
                scale: 2.0,
                zero: 8.0
            }
        );
        assert_eq!(grid.value(spec.code(grid, -15.0)), -16.0);
    }

    #[test]
    fn zeros_and_the_smallest_weights_have_a_grid() {
        for number in [Number::F16, Number::BF16, Number::F32] {
            let spec = GridSpec {
                number,
                ..spec(Symmetry::Asymmetric)
            };
            assert_eq!(
                spec.of(&[0.0; 3]),
                Grid {
                    scale: 1.0,
                    zero: 0.0
                }
            );
            let grid = spec.of(&[1e-44, -1e-44]);
            assert!(grid.scale > 0.0 && grid.zero == 0.0, "{grid:?}");
        }
    }
}
