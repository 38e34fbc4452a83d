//! A loaded model and prompts -> text: `generator` runs the model, `sampling` chooses tokens,
//! `stop` ends answers, `text` decodes them, `answers` counts exact matches.

mod answers;
mod generator;
mod not_finite;
mod reply;
mod sampling;
mod share;
mod stop;
mod text;

pub use answers::Questions;
pub use generator::{Answer, End, Flow, Generator, Request, Speed};
pub use not_finite::LogitsNotFinite;
pub use reply::Reply;
pub use sampling::{Draw, Sampling};
pub use stop::{Cut, TextPiece, end_tokens};
pub use text::TextStream;

use espalier_system::failure::UsageError;

use crate::Error;

/// The error for tokens that cannot be decoded.
fn undecodable(reason: String) -> Error {
    Error::Usage(UsageError {
        message: format!("the tokenizer cannot decode an answer: {reason}"),
        next_step: "check the model's tokenizer.json".to_owned(),
    })
}
