//! The logits of a token and a seed -> the token that follows.
//!
//! Temperature, then top-k, then top-p: the order of transformers' logits warpers.

use espalier_interface::random::{self, Purpose};
use espalier_system::failure::UsageError;

use crate::Error;

/// How a token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divisor of the logits; 0 takes the likeliest token.
    pub temperature: f64,
    /// Likeliest tokens to draw from; all where unset.
    pub top_k: Option<usize>,
    /// Draws from the fewest likeliest tokens whose probabilities reach this sum; 1 takes all.
    pub top_p: f64,
    /// Seed of the draws.
    pub seed: u64,
}

impl Default for Sampling {
    /// The likeliest token, always.
    fn default() -> Self {
        Sampling {
            temperature: 0.0,
            top_k: None,
            top_p: 1.0,
            seed: 42,
        }
    }
}

/// The place of a draw: no two of a run share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Index of the prompt.
    pub prompt: u32,
    /// Tokens of the answer so far.
    pub place: u32,
}

impl Sampling {
    /// Refuses numbers that mean nothing.
    ///
    /// # Errors
    /// [`Error::Usage`], naming the number.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |name: &str, expected: &str, found: f64| {
            Err(Error::Usage(UsageError {
                message: format!("{name}: expected {expected}, found {found}"),
                next_step: "correct it, or leave it out to take the likeliest token".to_owned(),
            }))
        };
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return refuse("--temperature", "0 or more", self.temperature);
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return refuse("--top-p", "above 0 and at most 1", self.top_p);
        }
        if self.top_k == Some(0) {
            return refuse("--top-k", "1 or more", 0.0);
        }
        let narrowing = match (self.top_k, self.top_p < 1.0) {
            (Some(_), _) => Some("--top-k"),
            (None, true) => Some("--top-p"),
            (None, false) => None,
        };
        if let (Some(name), true) = (narrowing, self.temperature == 0.0) {
            return Err(Error::Usage(UsageError {
                message: format!(
                    "{name} says which tokens are drawn from, and --temperature 0 draws none"
                ),
                next_step: format!("set --temperature above 0, or leave {name} out"),
            }));
        }
        Ok(())
    }

    /// The token that follows logits `[V]`; none where one of them is not finite. Of equal logits,
    /// the lower id is the likelier token.
    pub fn choose(&self, logits: &[f64], draw: Draw) -> Option<i32> {
        if logits.iter().any(|logit| !logit.is_finite()) {
            return None;
        }
        let best = likeliest(logits)?;
        if self.temperature == 0.0 {
            return Some(best as i32);
        }
        let weight = |id: usize| ((logits[id] - logits[best]) / self.temperature).exp();
        let mut kept: Vec<(f64, usize)> = (0..logits.len()).map(|id| (weight(id), id)).collect();
        self.keep_likeliest(&mut kept);
        let sum: f64 = kept.iter().map(|(weight, _)| weight).sum();
        let mut left = self.uniform(draw) * sum;
        for &(weight, id) in &kept {
            left -= weight;
            if left < 0.0 {
                return Some(id as i32);
            }
        }
        // Rounding may leave a little beyond the last.
        kept.last().map(|&(_, id)| id as i32)
    }

    /// Leaves what top-k and top-p let through of `(weight, id)`.
    fn keep_likeliest(&self, kept: &mut Vec<(f64, usize)>) {
        let likelier = |a: &(f64, usize), b: &(f64, usize)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if let Some(count) = self.top_k.filter(|&count| count < kept.len()) {
            kept.select_nth_unstable_by(count, likelier);
            kept.truncate(count);
        }
        if self.top_k.is_some() || self.top_p < 1.0 {
            kept.sort_unstable_by(likelier);
        }
        if self.top_p < 1.0 {
            let wanted = self.top_p * kept.iter().map(|(weight, _)| weight).sum::<f64>();
            let (mut reached, mut count) = (0.0, 0);
            while count < kept.len() && reached < wanted {
                reached += kept[count].0;
                count += 1;
            }
            kept.truncate(count.max(1));
        }
    }

    /// A number in `[0, 1)` with 53 random bits.
    fn uniform(&self, draw: Draw) -> f64 {
        let key = random::key(self.seed, Purpose::SAMPLING, 0);
        let words = random::philox(key, [draw.place, draw.prompt, 0, 0]);
        let bits = (u64::from(words[0]) << 32 | u64::from(words[1])) >> 11;
        bits as f64 / (1u64 << 53) as f64
    }
}

/// The first of the largest logits.
fn likeliest(logits: &[f64]) -> Option<usize> {
    let mut best = 0;
    for (id, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = id;
        }
    }
    (!logits.is_empty()).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f64; 5] = [0.0, 2.0, 1.0, 2.0, -1.0];
    const DRAWS: u32 = 20_000;

    fn sampling(temperature: f64, top_k: Option<usize>, top_p: f64) -> Sampling {
        Sampling {
            temperature,
            top_k,
            top_p,
            seed: 7,
        }
    }

    fn shares(sampling: Sampling) -> [f64; 5] {
        let mut shares = [0.0; 5];
        for place in 0..DRAWS {
            let draw = Draw { prompt: 3, place };
            let id = sampling.choose(&LOGITS, draw).expect("finite logits");
            shares[id as usize] += 1.0 / f64::from(DRAWS);
        }
        shares
    }

    /// softmax(logits / temperature) over the tokens `kept`.
    fn expected(temperature: f64, kept: &[usize]) -> [f64; 5] {
        let mut weights = [0.0; 5];
        kept.iter()
            .for_each(|&id| weights[id] = (LOGITS[id] / temperature).exp());
        let sum: f64 = weights.iter().sum();
        weights.map(|weight| weight / sum)
    }

    #[test]
    fn greedy_takes_the_first_of_the_largest() {
        let draw = Draw {
            prompt: 0,
            place: 0,
        };
        assert_eq!(Sampling::default().choose(&LOGITS, draw), Some(1));
    }

    #[test]
    fn draws_follow_the_probabilities() {
        for (sampling, kept) in [
            (sampling(1.0, None, 1.0), &[0, 1, 2, 3, 4][..]),
            (sampling(0.5, None, 1.0), &[0, 1, 2, 3, 4][..]),
            (sampling(1.0, Some(3), 1.0), &[1, 2, 3][..]),
            (sampling(2.0, Some(2), 1.0), &[1, 3][..]),
            // Tokens 1 and 3 have 0.39 each, token 2 has 0.14.
            (sampling(1.0, None, 0.81), &[1, 2, 3][..]),
            (sampling(1.0, None, 0.3), &[1][..]),
            (sampling(1.0, None, 1e-9), &[1][..]),
        ] {
            let expected = expected(sampling.temperature, kept);
            for (found, expected) in shares(sampling).into_iter().zip(expected) {
                // Four standard deviations of a share.
                assert!((found - expected).abs() < 0.015, "{sampling:?}: {found}");
                assert_eq!(found == 0.0, expected == 0.0, "{sampling:?}");
            }
        }
    }

    #[test]
    fn what_is_not_finite_chooses_nothing() {
        for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let draw = Draw {
                prompt: 0,
                place: 0,
            };
            assert_eq!(sampling(1.0, None, 1.0).choose(&[1.0, wrong], draw), None);
            assert_eq!(Sampling::default().choose(&[1.0, wrong], draw), None);
        }
    }

    #[test]
    fn numbers_that_mean_nothing_are_refused() {
        for wrong in [
            sampling(-0.1, None, 1.0),
            sampling(f64::NAN, None, 1.0),
            sampling(f64::INFINITY, None, 1.0),
            sampling(1.0, None, 0.0),
            sampling(1.0, None, 1.1),
            sampling(1.0, None, f64::NAN),
            sampling(1.0, Some(0), 1.0),
        ] {
            let error = wrong.check().expect_err("refused");
            assert_eq!(error.exit_code(), 2, "{error}");
        }
        sampling(0.7, Some(1), 1.0).check().expect("usual numbers");
    }
}
