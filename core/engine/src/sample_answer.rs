//! A held-out row as a question: the expected answer and the generated one, as texts to read.

use serde::{Deserialize, Serialize};

/// Most characters of a text that are kept.
const MOST_CHARS: usize = 400;
/// The mark of what is left out.
const CUT: char = '…';

/// A question of an evaluation with its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleAnswer {
    /// The prompt; of a long one the end.
    pub question: String,
    /// The answer of the row; of a long one the beginning.
    pub expected: String,
    /// The generated answer; of a long one the beginning.
    pub answer: String,
    /// Whether both are equal.
    pub right: bool,
}

/// The last [`MOST_CHARS`] characters of a text.
pub fn last_part(text: &str) -> String {
    let text = text.trim();
    match text.chars().count().checked_sub(MOST_CHARS) {
        None | Some(0) => text.to_owned(),
        Some(over) => std::iter::once(CUT)
            .chain(text.chars().skip(over))
            .collect(),
    }
}

/// The first [`MOST_CHARS`] characters of a text.
pub fn first_part(text: &str) -> String {
    let text = text.trim();
    if text.chars().count() <= MOST_CHARS {
        return text.to_owned();
    }
    text.chars().take(MOST_CHARS).chain([CUT]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_keep_what_is_next_to_the_answer() {
        let long: String = (0..900)
            .map(|i| char::from(b'a' + (i % 26) as u8))
            .collect();
        let (first, last) = (first_part(&long), last_part(&long));
        assert_eq!(first.chars().count(), MOST_CHARS + 1);
        assert!(first.starts_with("abc") && first.ends_with(CUT));
        assert_eq!(last.chars().count(), MOST_CHARS + 1);
        assert!(last.starts_with(CUT) && long.ends_with(last.trim_start_matches(CUT)));
        for short in [" ä\n", "", &long[..MOST_CHARS]] {
            assert_eq!(first_part(short), short.trim());
            assert_eq!(last_part(short), short.trim());
        }
    }
}
