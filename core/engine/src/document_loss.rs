//! The loss of a held-out document.

use serde::{Deserialize, Serialize};

use crate::observer::number_or_null;

/// A held-out document's loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DocumentLoss {
    /// Sum over its trained tokens, in nats; `null` in the file where it is not finite, NaN when
    /// read.
    #[serde(deserialize_with = "number_or_null")]
    pub loss: f64,
    /// Trained tokens ranked first.
    pub correct: u64,
    /// Trained tokens.
    pub trained: u64,
}
