//! A token that cannot be chosen.

use espalier_system::failure::{ExitClass, Failure};

/// Logits that are not finite, during text generation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the logits of token {token} of an answer are not finite")]
pub struct LogitsNotFinite {
    /// The token of the answer, counted from 1.
    pub token: u64,
}

impl Failure for LogitsNotFinite {
    fn exit_class(&self) -> ExitClass {
        ExitClass::Numbers
    }

    fn next_step(&self) -> String {
        "try model.compute = \"f32\"; if it stays, the weights hold numbers that are not finite"
            .to_owned()
    }
}
