//! The logits of a token in two models -> the divergence of their predictions.

use crate::likeliest;

/// A token's predictions, in two bases.
#[derive(Clone, Copy, Debug)]
pub struct TokenDivergence {
    /// `KL(dense || arm)`, in nats.
    pub divergence: f64,
    /// Whether both predict the same token.
    pub same_top: bool,
}

impl TokenDivergence {
    /// From the logits `[V]` of both bases: `sum p (z - y) - log sum exp z + log sum exp y`, where
    /// `p` is the softmax of `z`.
    ///
    /// # Panics
    /// Where there are no logits.
    pub fn of(dense: &[f64], arm: &[f64]) -> Self {
        let [dense_top, arm_top] =
            [dense, arm].map(|logits| likeliest(logits).expect("a token has logits"));
        let (dense_most, arm_most) = (dense[dense_top], arm[arm_top]);
        let (mut dense_sum, mut arm_sum, mut apart) = (0.0, 0.0, 0.0);
        for (&z, &y) in dense.iter().zip(arm) {
            let (z, y) = (z - dense_most, y - arm_most);
            let weight = z.exp();
            dense_sum += weight;
            arm_sum += y.exp();
            // A term of weight 0 adds nothing, also where the difference is infinite.
            apart += if weight == 0.0 { 0.0 } else { weight * (z - y) };
        }
        let divergence = apart / dense_sum - dense_sum.ln() + arm_sum.ln();
        TokenDivergence {
            // Rounding can make it negative where both agree; NaN is kept.
            divergence: if divergence < 0.0 { 0.0 } else { divergence },
            same_top: dense_top == arm_top,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_divergence_of_two_distributions_equals_the_closed_form() {
        // p = (1/2, 1/4, 1/4), q = (1/4, 1/4, 1/2): KL = 1/2 ln 2 - 1/4 ln 2.
        let (p, q) = ([4.0f64, 2.0, 2.0], [1.0f64, 1.0, 2.0]);
        let found = TokenDivergence::of(&p.map(f64::ln), &q.map(f64::ln));
        assert!((found.divergence - 0.25 * 2.0f64.ln()).abs() < 1e-15);
        assert!(!found.same_top);
        let same = TokenDivergence::of(&[3.0, 800.0, -5.0], &[3.0, 800.0, -5.0]);
        assert_eq!((same.divergence, same.same_top), (0.0, true));
        // Probability 0 in the dense base adds nothing; probability 0 in the arm gives infinity.
        let [some, none] = [[0.0, 0.0, f64::NEG_INFINITY], [0.0, 0.0, 0.0]];
        let found = TokenDivergence::of(&some, &none).divergence;
        assert!((found - 1.5f64.ln()).abs() < 1e-15);
        assert_eq!(TokenDivergence::of(&none, &some).divergence, f64::INFINITY);
        assert!(
            TokenDivergence::of(&[0.0, f64::NAN], &[0.0, 0.0])
                .divergence
                .is_nan()
        );
    }
}
