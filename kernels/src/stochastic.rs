//! Results of a step -> stored params, rounded to nearest or stochastically.

use espalier_interface::stochastic::{RandomBits, bf16_bits};
use half::bf16;

use crate::element::Element;

/// Results that an optimizer rounds at once; a multiple of the elements of a block of random bits.
pub(crate) const AT_ONCE: usize = 256;

/// How results are rounded to a param's dtype.
pub trait Round<P: Element>: Copy + Sync {
    /// Stores at most 256 results as elements of a launch from `at` on, a multiple of 256.
    fn store(self, at: usize, results: &[P::Acc], params: &mut [P]);
}

/// To the nearest, ties to even.
#[derive(Clone, Copy, Debug)]
pub struct ToNearest;

impl<P: Element> Round<P> for ToNearest {
    #[inline(always)]
    fn store(self, _: usize, results: &[P::Acc], params: &mut [P]) {
        for (param, &result) in params.iter_mut().zip(results) {
            *param = P::store(result);
        }
    }
}

/// By the random bits of each element of a param.
#[derive(Clone, Copy, Debug)]
pub struct Stochastic {
    /// The param's bits in this step.
    pub bits: RandomBits,
    /// Index in the param of the launch's first element.
    pub first: u64,
}

impl Round<bf16> for Stochastic {
    #[inline(always)]
    fn store(self, at: usize, results: &[f32], params: &mut [bf16]) {
        let mut bits = [0; AT_ONCE];
        let bits = &mut bits[..results.len()];
        self.bits.fill(self.first + at as u64, bits);
        for ((param, &result), &bits) in params.iter_mut().zip(results).zip(&*bits) {
            *param = bf16::from_bits(bf16_bits(result, bits));
        }
    }
}

#[cfg(test)]
mod tests {
    use espalier_interface::stochastic::name_words;

    use super::*;
    use crate::adamw::{Adamw, adamw};
    use crate::check;

    /// A launch on a part of a param has the bits of the whole.
    #[test]
    fn a_part_is_rounded_as_in_the_whole_on_any_number_of_threads() {
        let n = 2 * crate::split::CHUNK + 320;
        let g = check::floats(&check::numbers(n, 1));
        let start: Vec<bf16> = check::numbers(n, 2)
            .iter()
            .map(|&x| bf16::from_f64(x))
            .collect();
        let config = Adamw {
            learning_rate: 1e-4,
            betas: [0.9, 0.99],
            eps: 1e-8,
            weight_decay: 0.1,
            step: 3,
            gradient_scale: 1.0,
        };
        let bits = RandomBits::new(42, 3, name_words("a.weight"));
        let cut = 192;
        let whole = |services: &dyn espalier_interface::Services, cuts: [usize; 3]| {
            let (mut p, mut m, mut v) = (start.clone(), vec![bf16::ZERO; n], vec![bf16::ZERO; n]);
            for range in [cuts[0]..cuts[1], cuts[1]..cuts[2]] {
                let rounding = Stochastic {
                    bits,
                    first: range.start as u64,
                };
                let (p, m, v) = (
                    &mut p[range.clone()],
                    &mut m[range.clone()],
                    &mut v[range.clone()],
                );
                adamw(services, config, rounding, &g[range], p, m, v);
            }
            (p, m, v)
        };
        check::same_on_two_threads(|services| whole(services, [0, 0, n]));
        let all = whole(&espalier_interface::Serial, [0, 0, n]);
        assert_eq!(whole(&espalier_interface::Serial, [0, cut, n]), all);
        assert_ne!(all.0, start);
    }
}
