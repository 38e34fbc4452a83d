//! Sums over held-out documents -> loss, perplexity and token accuracy.

use espalier_engine::document_loss::DocumentLoss;
use serde::Serialize;

/// Prediction metrics on held-out documents.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quality {
    /// Mean loss, nats per trained token.
    pub loss: f64,
    /// `exp(loss)`.
    pub perplexity: f64,
    /// Share of trained tokens ranked first.
    pub token_accuracy: f64,
}

impl Quality {
    /// From the sums over documents; `None` where no token is trained or the loss is not finite.
    pub fn of(total: DocumentLoss) -> Option<Self> {
        let tokens = total.trained as f64;
        let loss = total.loss / tokens;
        loss.is_finite().then(|| Quality {
            loss,
            perplexity: loss.exp(),
            token_accuracy: total.correct as f64 / tokens,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_without_a_trained_token_have_no_quality() {
        assert_eq!(Quality::of(DocumentLoss::default()), None);
        let of = |loss| DocumentLoss {
            loss,
            correct: 1,
            trained: 4,
        };
        assert_eq!(Quality::of(of(f64::NAN)), None);
        let quality = Quality::of(of(0.0)).expect("a loss");
        assert_eq!((quality.perplexity, quality.token_accuracy), (1.0, 0.25));
    }
}
