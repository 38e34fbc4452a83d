//! What a run says to who asked for a swap: how far it is, and what became of it.

use espalier_system::failure::chain;
use serde::{Deserialize, Serialize};

use super::{Outcome, SwapRecord};
use crate::Error;

/// The end of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SwapAnswer {
    /// What became of it.
    #[serde(flatten)]
    pub record: SwapRecord,
    /// The exit code of a refusal: as of a run that would have begun so.
    pub exit_code: u8,
    /// What the user can do next about a refusal.
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

    /// The run goes on as it was, because of `error`.
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

/// How far a swap is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "stage")]
pub enum Stage {
    /// Components are made, the plan too.
    Planning,
    /// Weights are put beside the old ones.
    Loading {
        /// Weights seen to.
        done: u64,
        /// Weights in all.
        total: u64,
    },
    /// It is tried on rows.
    Trying,
    /// It takes over.
    TakingOver,
}
