//! A conversation and its template -> its text and the bytes of it that are trained.
//!
//! Where a template encloses in `{% generation %}` what the model says, that is taken. Elsewhere an
//! answer is what the template writes from its generation prompt up to the answer's end token. To
//! find that, the conversation is rendered up to each answer, without and with it: both must be
//! the beginning of the whole rendering, or the places found would be those of another text.

use std::ops::Range;

use super::chat_template::{ChatTemplate, Turns};
use super::conversation::ASSISTANT;
use super::options::TrainOn;
use super::tokenizer::TextTokenizer;

/// The text of a conversation.
pub(super) struct Rendered {
    pub text: String,
    /// Bytes of it that are trained, in order; none where all are.
    pub trained: Option<Vec<Range<usize>>>,
}

/// Renders `turns`; the answers from `completion_from` on are the completion.
///
/// # Errors
/// What the template raises, or which of its renderings do not fit together.
pub(super) fn render(
    template: &ChatTemplate,
    tokenizer: &TextTokenizer,
    turns: Turns<'_>,
    completion_from: usize,
    train_on: TrainOn,
) -> Result<Rendered, String> {
    let messages = turns.messages;
    let text = template.text(turns, false)?;
    let first = match train_on {
        TrainOn::All => {
            let trained = None;
            return Ok(Rendered { text, trained });
        }
        TrainOn::Assistant => 0,
        TrainOn::Auto | TrainOn::Completion => completion_from,
    };
    let trained = match template.marks_generation() {
        true => marked(template, turns, first, &text)?,
        false => (first..messages.len())
            .filter(|&turn| messages[turn].role == ASSISTANT)
            .map(|turn| answer(template, tokenizer, turns, turn, &text))
            .collect::<Result<_, _>>()?,
    };
    Ok(Rendered {
        text,
        trained: Some(trained),
    })
}

/// What `{% generation %}` encloses in the turns from `first` on.
fn marked(
    template: &ChatTemplate,
    turns: Turns<'_>,
    first: usize,
    text: &str,
) -> Result<Vec<Range<usize>>, String> {
    let (unmarked, mut spans) = template.generated(turns)?;
    if unmarked != text {
        return Err("the template measures what {% generation %} encloses".into());
    }
    if first > 0 && first < turns.messages.len() {
        let before = template.generated(turns.first(first))?.1.len();
        spans.drain(..before.min(spans.len()));
    }
    Ok(spans)
}

/// The bytes of the answer that is number `turn`, its end token included.
fn answer(
    template: &ChatTemplate,
    tokenizer: &TextTokenizer,
    turns: Turns<'_>,
    turn: usize,
    text: &str,
) -> Result<Range<usize>, String> {
    let prompt = template.text(turns.first(turn), true)?;
    let until = match turn + 1 == turns.messages.len() {
        true => text.to_owned(),
        false => template.text(turns.first(turn + 1), false)?,
    };
    for (part, what) in [(&prompt, "before"), (&until, "up to")] {
        if !text.starts_with(part.as_str()) {
            return Err(format!(
                "the rendering {what} message {} is no beginning of the whole conversation's, so \
                 what is to be trained cannot be told; mark it with {{% generation %}} in the \
                 template, or set data.train_on = \"all\"",
                turn + 1
            ));
        }
    }
    if until.len() < prompt.len() {
        return Err(format!("message {} is not rendered", turn + 1));
    }
    let said = until[prompt.len()..].trim_end();
    let end = match tokenizer.ends_with_special(said) {
        true => prompt.len() + said.len(),
        false => until.len(),
    };
    Ok(prompt.len()..end)
}

/// Which tokens hold a byte of the `trained` ranges; `offsets` are the tokens' own bytes.
///
/// A byte that no token claims, such as a space that a tokenizer trims off, counts to the token
/// behind it.
pub(super) fn trained_tokens(offsets: &[(usize, usize)], trained: &[Range<usize>]) -> Vec<bool> {
    let mut behind = 0;
    let mut at = 0;
    let touches = |&(start, end): &(usize, usize)| {
        let start = start.min(behind);
        behind = behind.max(end);
        while trained.get(at).is_some_and(|range| range.end <= start) {
            at += 1;
        }
        trained
            .get(at)
            .is_some_and(|range| range.start < end && start < range.end)
    };
    offsets.iter().map(touches).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_touch_a_range_are_trained() {
        let offsets = [(0, 0), (0, 3), (3, 5), (6, 9), (9, 10), (9, 10), (10, 12)];
        let touched = |trained: &[(usize, usize)]| {
            let trained: Vec<_> = trained.iter().map(|&(begin, end)| begin..end).collect();
            let tokens = trained_tokens(&offsets, &trained);
            let touched = tokens.iter().enumerate().filter(|(_, trained)| **trained);
            touched.map(|(index, _)| index).collect::<Vec<_>>()
        };
        assert_eq!(touched(&[(0, 12)]), [1, 2, 3, 4, 5, 6]);
        assert_eq!(touched(&[(4, 7)]), [2, 3]);
        assert_eq!(touched(&[(5, 6)]), [3]); // the byte that was trimmed off
        assert_eq!(touched(&[(9, 10)]), [4, 5]); // two tokens of one letter
        assert_eq!(touched(&[(0, 3), (10, 12)]), [1, 6]);
        assert!(touched(&[]).is_empty());
    }
}
