//! A loaded model and prompts -> text: `generator` makes tokens, `sampling` chooses them, `stop` and `text` end and
//! show them, `answers` counts how many are right.

mod answers;
mod generator;
mod sampling;
mod stop;
mod text;

pub use answers::{ExactMatch, Questions};
pub use generator::{Answer, End, Flow, Generator, Request, Speed};
pub use sampling::{Draw, Sampling};
pub use stop::{Cut, Piece, end_tokens};
pub use text::TextStream;
