//! A run's answers to a swap request: progress and outcome.

use espalier_system::failure::chain;
use serde::{Deserialize, Serialize};

use super::{Outcome, SwapRecord};
use crate::Error;

/// The end of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SwapAnswer {
    /// The outcome.
    #[serde(flatten)]
    pub record: SwapRecord,
    /// The exit code of a refusal: that of a run started with these settings.
    pub exit_code: u8,
    /// The user's next step after a refusal.
    pub next_step: String,
}

impl SwapAnswer {
    /// The swap was made.
    pub(crate) fn taken(record: SwapRecord) -> Self {
        SwapAnswer {
            record,
            ..SwapAnswer::default()
        }
    }

    /// The run continues unchanged, because of `error`.
    pub(crate) fn refused(record: SwapRecord, error: &Error) -> Self {
        SwapAnswer {
            record: SwapRecord {
                outcome: Outcome::Refused,
                reason: Some(chain(error)),
                ..record
            },
            exit_code: error.exit_code(),
            next_step: error.next_step(),
        }
    }
}

/// The progress of a swap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "stage")]
pub enum Stage {
    /// Components and plan are being created.
    Planning,
    /// Weights are being loaded beside the old ones.
    Loading {
        /// Loaded weights.
        done: u64,
        /// All weights.
        total: u64,
    },
    /// It is being tested on rows.
    Trying,
    /// It is replacing the old component.
    TakingOver,
}
