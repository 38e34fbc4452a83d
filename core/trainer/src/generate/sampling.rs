//! The logits of a token and a seed -> the next token.
//!
//! Temperature, then top-k, then top-p: the order of transformers' logits warpers.

use espalier_interface::random::{self, Purpose};
use espalier_numeric::likeliest;
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

/// The counter of a random draw, unique in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Index of the prompt.
    pub prompt: u32,
    /// Tokens of the answer so far.
    pub place: u32,
}

impl Sampling {
    /// Refuses invalid values.
    ///
    /// # Errors
    /// [`Error::Usage`] with the name of the value.
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

    /// The next token for logits `[V]`; `None` where one of them is not finite. Of equal logits,
    /// the lower id counts as more likely.
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
        // Rounding can leave a remainder after the last.
        kept.last().map(|&(_, id)| id as i32)
    }

    /// Filters `(weight, id)` by top-k and top-p.
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

#[cfg(test)]
mod tests;
