//! Rows and a model -> the number of exact answers to their prompts, and the first answers.

use std::sync::Arc;

use espalier_compile::program::CacheShape;
use espalier_data::{Dataset, Sequence, TextTokenizer, UNTRAINED, Vocabulary};
use espalier_engine::exact_match::ExactMatch;
use espalier_engine::observer::{Event, Observer};
use espalier_engine::sample_answer::{SampleAnswer, first_part, last_part};
use espalier_engine::team::Team;
use espalier_plan::plan::Generation;
use espalier_system::files::ModelDirectory;
use espalier_system::stop::StopFlag;

use super::generator::{Flow, Generator, Request};
use super::sampling::Sampling;
use super::stop::end_tokens;
use super::undecodable;
use crate::Error;

/// Most tokens of an answer beyond the expected ones: a longer answer is wrong in any case.
const BEYOND: usize = 8;
/// Most questions answered at once.
const SLOTS: usize = 16;
/// Most prompt tokens of one prefill pass.
const PREFILL_TOKENS: usize = 512;
/// Most answers that are kept to be read.
const SAMPLES: usize = 5;

/// A row as a question.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Question {
    /// The tokens before the first trained one.
    prompt: Vec<i32>,
    /// The trained tokens that follow.
    expected: Vec<i32>,
}

/// The answers to all questions.
pub struct Answered {
    /// How many are right.
    pub exact: ExactMatch,
    /// The first of them, as texts.
    pub samples: Vec<SampleAnswer>,
}

/// The first trained part of a row, and the tokens before it; `None` where no token is trained.
fn question(sequence: &Sequence) -> Option<Question> {
    let labels: Vec<i32> = sequence.labels().collect();
    let first = labels.iter().position(|&label| label != UNTRAINED)?;
    let trained = labels[first..].iter().copied();
    Some(Question {
        prompt: sequence.tokens[..=first].to_vec(),
        expected: trained.take_while(|&label| label != UNTRAINED).collect(),
    })
}

/// Questions, and the tokenizer and end tokens to check answers.
pub struct Questions {
    list: Vec<Question>,
    /// Tokens that end an answer.
    ends: Vec<i32>,
    vocabulary: Arc<Vocabulary>,
}

impl Questions {
    /// The first `count` rows of a dataset as questions.
    ///
    /// # Errors
    /// As [`end_tokens`]; rows that cannot be read back.
    pub fn of(
        rows: &Dataset,
        count: u64,
        directory: &ModelDirectory,
        vocabulary: Arc<Vocabulary>,
    ) -> Result<Self, Error> {
        let count = rows
            .num_sequences()
            .min(usize::try_from(count).unwrap_or(usize::MAX));
        let read = |index| {
            let sequence = rows.sequence(index);
            sequence.map(|sequence| question(&sequence)).transpose()
        };
        let list: Vec<Question> = (0..count).filter_map(read).collect::<Result<_, _>>()?;
        let tokenizers = vocabulary.loaded_tokenizer().map(TextTokenizer::end_token);
        Ok(Questions {
            ends: end_tokens(directory, tokenizers, vocabulary.size() as u64)?,
            list,
            vocabulary,
        })
    }

    /// The capacity needed to answer them.
    pub fn demand(&self) -> Generation {
        demand(&self.list)
    }

    /// Answers them greedily with a run's own weights, reports each answer as it ends, and counts
    /// answers equal to the expected text without surrounding white space. Where rows were read
    /// without a tokenizer, tokens are compared.
    ///
    /// # Errors
    /// As [`Generator::answer`]; tokens that the tokenizer cannot decode.
    pub fn answer(
        &self,
        team: &Team,
        observer: &dyn Observer,
        stop: &StopFlag,
    ) -> Result<Answered, Error> {
        let mut generator = Generator::new(team, Sampling::default(), &self.ends, stop)?;
        let request = |question: &'_ Question| question.expected.len() + BEYOND;
        let requests: Vec<Request<'_>> = self
            .list
            .iter()
            .map(|question| Request {
                prompt: &question.prompt,
                max_new_tokens: request(question),
            })
            .collect();
        let (mut done, total) = (0, self.list.len() as u64);
        observer.observe(&Event::AnswerProgress { done, total });
        let answers = generator.answer_counted(
            &requests,
            &mut |_, _| Ok(Flow::Continue),
            &mut |answered| {
                done += answered;
                observer.observe(&Event::AnswerProgress { done, total });
            },
        )?;
        let (mut right, mut samples) = (0, Vec::new());
        for (question, answer) in self.list.iter().zip(&answers) {
            let expected = without_end(&question.expected, &self.ends);
            let same = self.same(&answer.tokens, expected)?;
            right += u64::from(same);
            if samples.len() < SAMPLES {
                samples.push(SampleAnswer {
                    question: last_part(&self.text(&question.prompt)?),
                    expected: first_part(&self.text(expected)?),
                    answer: first_part(&self.text(&answer.tokens)?),
                    right: same,
                });
            }
        }
        let asked = self.list.len() as u64;
        Ok(Answered {
            exact: ExactMatch { right, asked },
            samples,
        })
    }

    /// The text of `tokens` without special tokens; their ids where rows were read without a
    /// tokenizer.
    fn text(&self, tokens: &[i32]) -> Result<String, Error> {
        match self.vocabulary.loaded_tokenizer() {
            Some(tokenizer) => tokenizer.decode_plain(tokens).map_err(undecodable),
            None => {
                let ids: Vec<String> = tokens.iter().map(i32::to_string).collect();
                Ok(ids.join(" "))
            }
        }
    }

    /// Whether two answers are equal.
    fn same(&self, one: &[i32], other: &[i32]) -> Result<bool, Error> {
        let Some(tokenizer) = self.vocabulary.loaded_tokenizer() else {
            return Ok(one == other);
        };
        let text = |tokens: &[i32]| tokenizer.decode_plain(tokens);
        let both = text(one).and_then(|one| Ok(one.trim() == text(other)?.trim()));
        both.map_err(undecodable)
    }
}

/// The capacity needed to answer `questions`.
fn demand(questions: &[Question]) -> Generation {
    let longest = |length: fn(&Question) -> usize| questions.iter().map(length).max();
    let capacity = longest(|one| one.prompt.len() + one.expected.len() + BEYOND);
    let prompts: usize = questions.iter().map(|one| one.prompt.len()).sum();
    let slots = questions.len().clamp(1, SLOTS);
    Generation {
        cache: CacheShape {
            slots: slots as u64,
            capacity: capacity.unwrap_or(1) as u64,
        },
        max_tokens: prompts.min(PREFILL_TOKENS).max(slots) as u64,
    }
}

/// `tokens` up to the first end token.
fn without_end<'a>(tokens: &'a [i32], ends: &[i32]) -> &'a [i32] {
    let end = tokens.iter().position(|token| ends.contains(token));
    &tokens[..end.unwrap_or(tokens.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn questions(lengths: &[[usize; 2]]) -> Vec<Question> {
        let tokens = |length| vec![5; length];
        let of = |&[prompt, expected]: &[usize; 2]| Question {
            prompt: tokens(prompt),
            expected: tokens(expected),
        };
        lengths.iter().map(of).collect()
    }

    #[test]
    fn the_demand_holds_the_longest_question_and_its_answer() {
        let found = demand(&questions(&[[3, 40], [30, 2], [1, 1]]));
        assert_eq!((found.cache.slots, found.cache.capacity), (3, 43 + 8));
        assert_eq!(found.max_tokens, 34);
        let found = demand(&questions(&[[100, 1]; 40]));
        assert_eq!((found.cache.slots, found.max_tokens), (16, 512));
        let found = demand(&questions(&[]));
        assert_eq!(
            (found.cache.slots, found.cache.capacity, found.max_tokens),
            (1, 1, 1)
        );
    }

    #[test]
    fn an_expected_answer_ends_at_its_end_token() {
        assert_eq!(without_end(&[4, 5, 1, 9], &[1, 2]), [4, 5]);
        assert_eq!(without_end(&[4, 5], &[1]), [4, 5]);
    }
}
