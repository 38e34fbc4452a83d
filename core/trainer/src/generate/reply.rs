//! The tokens of one answer -> its text, streamed up to the first stop text.

use espalier_data::TextTokenizer;

use super::generator::Flow;
use super::stop::Cut;
use super::text::TextStream;
use super::undecodable;
use crate::Error;

/// An answer as text.
pub struct Reply<'a> {
    tokenizer: &'a TextTokenizer,
    stream: TextStream,
    cut: Cut,
    text: String,
    stopped: bool,
}

impl<'a> Reply<'a> {
    /// An answer that ends before any of the texts `stops`.
    pub fn new(tokenizer: &'a TextTokenizer, stops: &[String]) -> Self {
        Reply {
            tokenizer,
            stream: TextStream::default(),
            cut: Cut::new(stops),
            text: String::new(),
            stopped: false,
        }
    }

    /// Takes the next token; passes the completed text, if any, to `show`.
    ///
    /// # Errors
    /// A token that cannot be decoded.
    pub fn push(&mut self, token: i32, show: &mut dyn FnMut(&str)) -> Result<Flow, Error> {
        let piece = self
            .stream
            .push(self.tokenizer, token)
            .map_err(undecodable)?;
        let piece = self.cut.push(&piece);
        self.stopped = piece.stopped;
        self.give(&piece.text, show);
        Ok(if piece.stopped {
            Flow::Stop
        } else {
            Flow::Continue
        })
    }

    /// Ends the answer; passes the text held back, if any, to `show`, and returns the whole text.
    ///
    /// # Errors
    /// As [`Reply::push`].
    pub fn finish(mut self, show: &mut dyn FnMut(&str)) -> Result<String, Error> {
        if !self.stopped {
            let piece = self.stream.finish(self.tokenizer).map_err(undecodable)?;
            let piece = self.cut.push(&piece);
            self.give(&piece.text, show);
            if !piece.stopped {
                let held = self.cut.finish();
                self.give(&held, show);
            }
        }
        Ok(self.text)
    }

    fn give(&mut self, text: &str, show: &mut dyn FnMut(&str)) {
        if !text.is_empty() {
            self.text.push_str(text);
            show(text);
        }
    }
}
