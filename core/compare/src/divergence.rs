//! The logits of an arm's base and of the dense base -> the divergence of the predictions.

use espalier_data::MicroBatch;
use espalier_engine::Error;
use espalier_engine::executor::{Executor, LogitsWindow};
use espalier_engine::not_finite::NotFinite;
use espalier_numeric::TokenDivergence;
use espalier_system::failure::UsageError;
use espalier_system::threads::HostServices;
use rayon::prelude::*;

use super::dense_baseline::{BaselineLogits, Picker, for_each_block, row};
use super::record::{Divergence, DocumentDivergence};

/// Writes the chosen tokens' logits to the file.
pub(super) struct Recorder {
    kept: BaselineLogits,
    picker: Picker,
    written: u64,
}

/// Compares the chosen tokens' logits with the kept ones.
pub(super) struct Comparer<'a> {
    kept: &'a BaselineLogits,
    services: &'static HostServices,
    picker: Picker,
    tokens: Vec<TokenDivergence>,
    documents: Vec<DocumentDivergence>,
}

impl Recorder {
    pub(super) fn new(kept: BaselineLogits) -> Self {
        Recorder {
            picker: Picker::new(kept.choice),
            kept,
            written: 0,
        }
    }

    /// Takes the logits of a window of `micro`.
    pub(super) fn take(
        &mut self,
        micro: &MicroBatch,
        window: &LogitsWindow<'_>,
    ) -> Result<(), Error> {
        let chosen = self.picker.pick(micro, window.tokens());
        let row_bytes = self.kept.row_bytes;
        for_each_block(window, &chosen, row_bytes, &mut |bytes| {
            self.kept.write(self.written, bytes)?;
            self.written += bytes.len() as u64 / row_bytes;
            Ok(())
        })
    }

    /// The logits, all written.
    pub(super) fn finish(self) -> BaselineLogits {
        assert_eq!(
            self.written, self.kept.choice.chosen,
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
            picker: Picker::new(kept.choice),
            tokens: Vec::with_capacity(kept.choice.chosen as usize),
            documents: Vec::new(),
        })
    }

    /// Takes the logits of a window of `micro`, the first row of whose step is document number
    /// `first`.
    pub(super) fn take(
        &mut self,
        first: usize,
        micro: &MicroBatch,
        window: &LogitsWindow<'_>,
    ) -> Result<(), Error> {
        let chosen = self.picker.pick(micro, window.tokens());
        let (row_bytes, dtype) = (window.row_bytes()?, window.dtype());
        let before = self.tokens.len();
        for_each_block(window, &chosen, row_bytes, &mut |arm| {
            let rows = arm.len() / row_bytes as usize;
            let mut dense = vec![0; rows * self.kept.row_bytes as usize];
            self.kept.read(self.tokens.len() as u64, &mut dense)?;
            let token = |index: usize| {
                let dense = row(&dense, self.kept.row_bytes, index, self.kept.dtype);
                TokenDivergence::of(&dense, &row(arm, row_bytes, index, dtype))
            };
            let work = || (0..rows).into_par_iter().map(token).collect::<Vec<_>>();
            self.tokens.extend(self.services.install(work));
            Ok(())
        })?;
        for (token, found) in chosen.into_iter().zip(&self.tokens[before..]) {
            let document = first + document_of(micro, token);
            if self.documents.len() <= document {
                let nothing = DocumentDivergence::default();
                self.documents.resize(document + 1, nothing);
            }
            self.documents[document].sum += found.divergence;
            self.documents[document].tokens += 1;
        }
        Ok(())
    }

    /// The divergence on `documents` documents; `None` where no token is trained.
    ///
    /// # Errors
    /// Tokens that differ from the kept ones; a divergence that is not finite.
    pub(super) fn finish(mut self, documents: usize) -> Result<Option<Divergence>, Error> {
        if !self.picker.is_through() {
            return Err(incomparable(
                "the arm was given other held-out rows than the dense one".to_owned(),
            ));
        }
        self.documents
            .resize(documents, DocumentDivergence::default());
        let found = divergence(&self.tokens).map(|found| Divergence {
            documents: self.documents,
            ..found
        });
        match found {
            Some(found) if !(found.mean.is_finite() && found.largest.is_finite()) => {
                let (step, tensor) = (1, "the divergence from the dense base".to_owned());
                Err(Error::NotFinite(NotFinite::unapplied(step, tensor)))
            }
            found => Ok(found),
        }
    }
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
