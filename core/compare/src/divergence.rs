//! The logits of an arm's base and of the dense base -> the divergence of the predictions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use espalier_data::MicroBatch;
use espalier_engine::Error;
use espalier_engine::executor::Executor;
use espalier_engine::not_finite::NotFinite;
use espalier_engine::step::{EvalOutcome, Shown};
use espalier_numeric::TokenDivergence;
use espalier_system::failure::UsageError;
use espalier_system::threads::HostServices;
use rayon::prelude::*;

use super::dense_baseline::{BaselineLogits, Chosen, for_each_block, row};
use super::record::{Divergence, DocumentDivergence};

/// Writes the chosen tokens' logits to the file, for several ranks at once.
pub(super) struct Recorder {
    kept: BaselineLogits,
    written: AtomicU64,
}

/// Compares the chosen tokens' logits with the kept ones, for several ranks at once.
pub(super) struct Comparer<'a> {
    kept: &'a BaselineLogits,
    services: &'static HostServices,
    found: Mutex<Vec<Found>>,
}

/// A chosen token that was compared.
struct Found {
    /// Its number among all chosen tokens.
    place: u64,
    /// Its row's number in the files.
    document: usize,
    divergence: TokenDivergence,
}

impl Recorder {
    pub(super) fn new(kept: BaselineLogits) -> Self {
        Recorder {
            kept,
            written: AtomicU64::new(0),
        }
    }

    /// Takes the logits of a window.
    pub(super) fn take(&self, shown: &Shown<'_>) -> Result<(), Error> {
        let chosen = chosen(&self.kept, shown);
        let row_bytes = self.kept.row_bytes;
        for_each_block(shown.window, &chosen, row_bytes, &mut |chosen, bytes| {
            // Those of a window follow each other.
            self.kept.write(chosen[0].place, bytes)?;
            let count = chosen.len() as u64;
            self.written.fetch_add(count, Ordering::Relaxed);
            Ok(())
        })
    }

    /// The logits, all written.
    pub(super) fn finish(self) -> BaselineLogits {
        assert_eq!(
            self.written.into_inner(),
            self.kept.choice.chosen,
            "tokens that were to be kept"
        );
        self.kept
    }
}

impl<'a> Comparer<'a> {
    /// Of the arm in `executor`.
    ///
    /// # Errors
    /// Predictions over another vocabulary than the dense base's.
    pub(super) fn new(
        kept: &'a BaselineLogits,
        executor: &Executor,
        services: &'static HostServices,
    ) -> Result<Self, Error> {
        let found = executor.logits_row_bytes()? / executor.logits_dtype().bytes();
        let expected = kept.row_bytes / kept.dtype.bytes();
        if found != expected {
            return Err(incomparable(format!(
                "the arm predicts {found} tokens, the dense arm {expected}"
            )));
        }
        Ok(Comparer {
            kept,
            services,
            found: Mutex::new(Vec::with_capacity(kept.choice.chosen as usize)),
        })
    }

    /// Takes the logits of a window.
    pub(super) fn take(&self, shown: &Shown<'_>) -> Result<(), Error> {
        let chosen = chosen(self.kept, shown);
        let (row_bytes, dtype) = (shown.window.row_bytes()?, shown.window.dtype());
        for_each_block(shown.window, &chosen, row_bytes, &mut |chosen, arm| {
            let mut dense = vec![0; chosen.len() * self.kept.row_bytes as usize];
            self.kept.read(chosen[0].place, &mut dense)?;
            let token = |index: usize| {
                let dense = row(&dense, self.kept.row_bytes, index, self.kept.dtype);
                Found {
                    place: chosen[index].place,
                    document: shown.first_row + document_of(shown.micro, chosen[index].token),
                    divergence: TokenDivergence::of(&dense, &row(arm, row_bytes, index, dtype)),
                }
            };
            let tokens = 0..chosen.len();
            let work = || tokens.into_par_iter().map(token).collect::<Vec<_>>();
            let found = self.services.install(work);
            let mut all = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(found);
            Ok(())
        })
    }

    /// The divergence on the rows of `evaluated`; `None` where no token is trained.
    ///
    /// # Errors
    /// Tokens that differ from the kept ones; a divergence that is not finite.
    pub(super) fn finish(self, evaluated: &EvalOutcome) -> Result<Option<Divergence>, Error> {
        if evaluated.trained_tokens != self.kept.choice.trained {
            return Err(incomparable(
                "the arm was given other held-out rows than the dense one".to_owned(),
            ));
        }
        let found = self.found.into_inner();
        let mut found = found.unwrap_or_else(PoisonError::into_inner);
        found.sort_unstable_by_key(|one| one.place);
        let mut documents = vec![DocumentDivergence::default(); evaluated.documents.len()];
        for one in &found {
            documents[one.document].sum += one.divergence.divergence;
            documents[one.document].tokens += 1;
        }
        let tokens: Vec<TokenDivergence> = found.into_iter().map(|one| one.divergence).collect();
        let found = divergence(&tokens).map(|found| Divergence { documents, ..found });
        match found {
            Some(found) if !(found.mean.is_finite() && found.largest.is_finite()) => {
                let (step, tensor) = (1, "the divergence from the dense base".to_owned());
                Err(Error::NotFinite(NotFinite::unapplied(step, tensor)))
            }
            found => Ok(found),
        }
    }
}

/// The tokens of a window that are measured.
fn chosen(kept: &BaselineLogits, shown: &Shown<'_>) -> Vec<Chosen> {
    let tokens = shown.window.tokens();
    kept.choice.pick(shown.trained_before, shown.micro, tokens)
}

/// The row of a token of `micro`, by its number within the step.
fn document_of(micro: &MicroBatch, token: u64) -> usize {
    let ends = &micro.cu_seqlens[1..];
    let place = ends.partition_point(|end| *end as u64 <= token);
    micro.sequences[place] as usize
}

fn incomparable(message: String) -> Error {
    Error::Usage(UsageError {
        message,
        next_step: "compare arms on the same model and rows".to_owned(),
    })
}

/// The divergence over `tokens`; `None` without any.
fn divergence(tokens: &[TokenDivergence]) -> Option<Divergence> {
    let count = tokens.len() as f64;
    let mut sorted: Vec<f64> = tokens.iter().map(|token| token.divergence).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    // The nearest rank.
    let percentile = |share: f64| sorted[((share * count).ceil() as usize).max(1) - 1];
    let sum: f64 = tokens.iter().map(|token| token.divergence).sum();
    let same = tokens.iter().filter(|token| token.same_top).count();
    Some(Divergence {
        tokens: tokens.len() as u64,
        mean: sum / count,
        largest: *sorted.last()?,
        median: percentile(0.5),
        p99: percentile(0.99),
        same_top: same as f64 / count,
        documents: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let token = |i: u32| TokenDivergence {
            divergence: f64::from(i * 37 % 200 + 1),
            same_top: i.is_multiple_of(4),
        };
        let tokens: Vec<TokenDivergence> = (0..200).map(token).collect();
        let found = divergence(&tokens).expect("tokens");
        assert_eq!(
            (found.median, found.p99, found.largest),
            (100.0, 198.0, 200.0)
        );
        assert_eq!(
            (found.tokens, found.mean, found.same_top),
            (200, 100.5, 0.25)
        );
        assert!(divergence(&[]).is_none());
    }
}
