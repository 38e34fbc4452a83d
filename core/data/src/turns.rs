//! A conversation and its template -> its text and the bytes of it that are trained.
//!
//! Where a template marks the model's text with `{% generation %}`, that text is trained. Otherwise
//! an answer is the text from the generation prompt up to the answer's end token. To locate it, the
//! conversation is rendered up to each answer, without and with it. Both have to be prefixes of the
//! whole rendering; otherwise the positions would be wrong.

use std::ops::Range;

use super::chat_template::{self, Answer, ChatTemplate, Fault, Job, Turns};
use super::conversation::ASSISTANT;
use super::options::TrainOn;
use super::tokenizer::TextTokenizer;

/// The text of a conversation.
pub(super) struct Rendered {
    pub text: String,
    /// Byte ranges that are trained, in order; none where all are.
    pub trained: Option<Vec<Range<usize>>>,
}

/// Renders `turns`; the answers from `completion_from` on are the completion.
///
/// # Errors
/// [`Fault::Raised`] where the template raises an error, or its renderings are no prefixes of each
/// other. [`Fault::Met`] where it exceeds a bound.
pub(super) fn render(
    template: &ChatTemplate,
    tokenizer: &TextTokenizer,
    turns: Turns<'_>,
    completion_from: usize,
    train_on: TrainOn,
) -> Result<Rendered, Fault> {
    let first = match train_on {
        TrainOn::All => None,
        TrainOn::Assistant => Some(0),
        TrainOn::Auto | TrainOn::Completion => Some(completion_from),
    };
    let Some(first) = first else {
        let mut answers = template.answers(turns, &[Job::text(turns.messages.len())])?;
        return Ok(Rendered {
            text: answers.remove(0).text(),
            trained: None,
        });
    };
    if template.marks_generation() {
        marked(template, turns, first)
    } else {
        answered(template, tokenizer, turns, first)
    }
}

/// Trains the text that `{% generation %}` encloses in the turns from `first` on.
fn marked(template: &ChatTemplate, turns: Turns<'_>, first: usize) -> Result<Rendered, Fault> {
    let all = turns.messages.len();
    let mut jobs = vec![Job::text(all), Job::marked(all)];
    if first > 0 && first < all {
        jobs.push(Job::marked(first));
    }
    let mut texts = template
        .answers(turns, &jobs)?
        .into_iter()
        .map(Answer::text);
    let mut next = || texts.next().expect("an answer for each job");
    let (text, (unmarked, mut spans)) = (next(), chat_template::generated(&next())?);
    if unmarked != text {
        let reason = "the template measures what {% generation %} encloses";
        return Err(reason.to_owned().into());
    }
    if jobs.len() == 3 {
        let before = chat_template::generated(&next())?.1.len();
        spans.drain(..before.min(spans.len()));
    }
    Ok(Rendered {
        text,
        trained: Some(spans),
    })
}

/// Trains the answers from turn `first` on, with their end tokens.
fn answered(
    template: &ChatTemplate,
    tokenizer: &TextTokenizer,
    turns: Turns<'_>,
    first: usize,
) -> Result<Rendered, Fault> {
    let all = turns.messages.len();
    let is_answer = |&turn: &usize| turns.messages[turn].role == ASSISTANT;
    let said: Vec<usize> = (first..all).filter(is_answer).collect();
    let parts = said
        .iter()
        .flat_map(|&turn| [Job::beginning(turn).with_prompt(), Job::beginning(turn + 1)]);
    // The last turn ends where the text does, and no rendering is requested twice.
    let jobs: Vec<Job> = std::iter::once(Job::text(all))
        .chain(parts.filter(|job| *job != Job::beginning(all)))
        .collect();
    let mut answers = template.answers(turns, &jobs)?.into_iter();
    let mut next = || answers.next().expect("an answer for each job");
    let text = next().text();
    let mut trained = Vec::with_capacity(said.len());
    for turn in said {
        let prompt = next().beginning();
        let until = if turn + 1 == all {
            Some(text.len())
        } else {
            next().beginning()
        };
        trained.push(answer(tokenizer, &text, turn, prompt, until)?);
    }
    Ok(Rendered {
        text,
        trained: Some(trained),
    })
}

/// The bytes of the answer of turn `turn`, from the lengths of the renderings before it and up to
/// it.
fn answer(
    tokenizer: &TextTokenizer,
    text: &str,
    turn: usize,
    prompt: Option<usize>,
    until: Option<usize>,
) -> Result<Range<usize>, String> {
    let unfit = |what| {
        format!(
            "the rendering {what} message {} is not a prefix of the whole conversation's, so \
             it is not known what is to be trained; mark it with {{% generation %}} in the \
             template, or set data.train_on = \"all\"",
            turn + 1
        )
    };
    let prompt = prompt.ok_or_else(|| unfit("before"))?;
    let until = until.ok_or_else(|| unfit("up to"))?;
    if until < prompt {
        return Err(format!("message {} is not rendered", turn + 1));
    }
    let said = text[prompt..until].trim_end();
    let end = if tokenizer.ends_with_special(said) {
        prompt + said.len()
    } else {
        until
    };
    Ok(prompt..end)
}

/// Which tokens contain a byte of the `trained` ranges; `offsets` are the tokens' own bytes.
///
/// A byte without a token, such as a space that the tokenizer trims, belongs to the next token.
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
