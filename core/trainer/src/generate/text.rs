//! Tokens one by one -> text piece by piece, in complete characters.

use espalier_data::TextTokenizer;

/// A decoder's output for an incomplete character.
const UNFINISHED: char = '\u{FFFD}';

/// The text of a growing list of tokens.
///
/// A token's text depends on those before it (a space that only the first word lacks, a character
/// in several tokens). A piece is therefore the difference of two decodings: with and without the
/// new tokens.
#[derive(Clone, Debug, Default)]
pub struct TextStream {
    tokens: Vec<i32>,
    /// Start of the tokens that are decoded again as context.
    context: usize,
    /// Tokens whose text was returned.
    given: usize,
}

impl TextStream {
    /// Takes the next token and returns the completed text; special tokens have none.
    ///
    /// # Errors
    /// The tokenizer's own reason.
    pub fn push(&mut self, tokenizer: &TextTokenizer, token: i32) -> Result<String, String> {
        self.push_by(&|ids| tokenizer.decode_plain(ids), token)
    }

    /// The rest at the end: an incomplete character is shown as U+FFFD.
    ///
    /// # Errors
    /// The tokenizer's own reason.
    pub fn finish(&mut self, tokenizer: &TextTokenizer) -> Result<String, String> {
        self.finish_by(&|ids| tokenizer.decode_plain(ids))
    }

    fn push_by(&mut self, decode: &Decode<'_>, token: i32) -> Result<String, String> {
        self.tokens.push(token);
        let (before, all) = self.both(decode)?;
        if all.ends_with(UNFINISHED) || all.len() <= before.len() {
            return Ok(String::new());
        }
        (self.context, self.given) = (self.given, self.tokens.len());
        Ok(added(&before, &all))
    }

    fn finish_by(&mut self, decode: &Decode<'_>) -> Result<String, String> {
        let (before, all) = self.both(decode)?;
        (self.context, self.given) = (self.tokens.len(), self.tokens.len());
        Ok(added(&before, &all))
    }

    /// The text from the context on: of the returned tokens, and of all.
    fn both(&self, decode: &Decode<'_>) -> Result<(String, String), String> {
        let before = decode(&self.tokens[self.context..self.given])?;
        Ok((before, decode(&self.tokens[self.context..])?))
    }
}

type Decode<'a> = dyn Fn(&[i32]) -> Result<String, String> + 'a;

/// The part of `all` after `before`.
fn added(before: &str, all: &str) -> String {
    all.get(before.len()..).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tokenizer of single bytes that drops the space before the first word.
    fn bytes(ids: &[i32]) -> Result<String, String> {
        let bytes: Vec<u8> = ids.iter().map(|&id| id as u8).collect();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(text.strip_prefix(' ').map(str::to_owned).unwrap_or(text))
    }

    #[test]
    fn characters_are_complete_and_spaces_are_kept() {
        let text = " né 日本 \u{1F600} a";
        let mut stream = TextStream::default();
        let mut pieces = Vec::new();
        for byte in text.bytes() {
            let piece = stream.push_by(&bytes, i32::from(byte)).expect("decodable");
            assert!(!piece.contains(UNFINISHED), "{piece:?}");
            pieces.push(piece);
        }
        assert_eq!(pieces.concat(), text.trim_start());
        assert_eq!(stream.finish_by(&bytes).expect("decodable"), "");
    }

    #[test]
    fn incomplete_characters_are_shown_at_the_end() {
        let mut stream = TextStream::default();
        assert_eq!(stream.push_by(&bytes, 0x61).expect("decodable"), "a");
        assert_eq!(stream.push_by(&bytes, 0xE6).expect("decodable"), "");
        assert_eq!(stream.finish_by(&bytes).expect("decodable"), "\u{FFFD}");
    }
}
