//! Counts of the rows of files by outcome, and of their trained tokens.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::fault::Dropped;
use super::format::Format;
use super::options::TrainOn;

/// Counts of the rows of all files by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Rows in the files.
    pub rows: u64,
    /// Rows cut to `max_seq_len`.
    pub truncated: u64,
    /// Rows left out because they are longer than `max_seq_len`.
    pub too_long: u64,
    /// Rows left out because the tokens before the first trained one fill `max_seq_len`.
    pub prompt_fills: u64,
    /// Rows left out because none of their tokens would be trained at any length.
    pub untrained: u64,
    /// Rows left out because they are bad.
    pub dropped: Dropped,
    /// Tokens of the rows that stay.
    pub tokens: u64,
    /// Trained ones of them: those whose label is not `UNTRAINED` after the shift.
    pub trained_tokens: u64,
    /// Tokens of the longest row before any were cut off.
    pub longest: u64,
    /// Trained tokens that are lost.
    pub lost: Lost,
    /// What is trained of the rows that stay.
    pub trains: Trains,
}

/// Trained tokens in the files that no step will train, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lost {
    /// Cut off rows that stay.
    pub truncated: u64,
    /// Of rows whose prompt fills `max_seq_len`.
    pub prompt_fills: u64,
    /// Of rows left out as longer than `max_seq_len`.
    pub too_long: u64,
    /// Of rows left out as bad; an unreadable row counts with the mean length.
    pub dropped: u64,
}

impl Lost {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.to_length() + self.dropped
    }

    /// Those lost to `max_seq_len`.
    pub fn to_length(&self) -> u64 {
        self.truncated + self.prompt_fills + self.too_long
    }
}

/// What is trained of the rows that stay, by kind of row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trains {
    /// Conversations.
    pub conversations: u64,
    /// Their answers that are trained.
    pub answers: u64,
    /// Their answers that are not.
    pub untrained_answers: u64,
    /// Conversations whose last answer alone is trained, because the template does not let earlier
    /// answers be located.
    pub last_alone: u64,
    /// Trained answers without text: they train the end of an answer.
    pub empty_answers: u64,
    /// Prompts whose completion is trained.
    pub completions: u64,
    /// Rows of which every token is trained.
    pub whole: u64,
    /// Rows of ids that are trained where their labels say so.
    pub labelled: u64,
}

/// A reason for lost rows or tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// Rows that it applies to.
    pub rows: u64,
    /// Its text, which follows the number of rows.
    pub what: &'static str,
    /// Trained tokens that they lose; unset where the rows of several reasons are counted together.
    pub lost_tokens: Option<u64>,
}

impl Counts {
    /// Rows that are trained.
    pub fn kept(&self) -> u64 {
        let left_out = self.too_long + self.prompt_fills + self.untrained + self.dropped.total();
        self.rows - left_out
    }

    /// Trained tokens of all rows before anything is cut off or left out.
    pub fn all_trained_tokens(&self) -> u64 {
        self.trained_tokens + self.lost.total()
    }

    /// `lost` as a share of [`Counts::all_trained_tokens`].
    pub fn share(&self, lost: u64) -> f64 {
        lost as f64 / self.all_trained_tokens().max(1) as f64
    }

    /// Counts unreadable rows with the mean length; no row may be added afterwards.
    pub(super) fn finish(&mut self) {
        let unread = self.dropped.total() - self.dropped.empty;
        let read = self.kept() + self.too_long + self.prompt_fills;
        let tokens = self.trained_tokens + self.lost.to_length();
        let mean = tokens as f64 / read.max(1) as f64;
        self.lost.dropped = (mean * unread as f64).round() as u64;
    }

    /// The reasons why rows are not trained as they are in the files.
    pub fn reasons(&self) -> Vec<Reason> {
        let of = |rows, what, lost_tokens| Reason {
            rows,
            what,
            lost_tokens,
        };
        let lost = &self.lost;
        let lengths = [
            of(
                self.truncated,
                "cut to data.max_seq_len",
                Some(lost.truncated),
            ),
            of(
                self.prompt_fills,
                "left out: the prompt fills data.max_seq_len",
                Some(lost.prompt_fills),
            ),
            of(
                self.too_long,
                "left out: longer than data.max_seq_len",
                Some(lost.too_long),
            ),
            of(self.untrained, "left out: no trained token", Some(0)),
        ];
        let bad = self.dropped.by_kind();
        let bad = bad.into_iter().map(|(rows, what)| of(rows, what, None));
        let all = lengths.into_iter().chain(bad);
        all.filter(|reason| reason.rows > 0).collect()
    }

    /// `12 of 100 rows cut to data.max_seq_len (3.1 %)`, one reason after the other; the shares are
    /// of the trained tokens.
    pub fn summary(&self) -> String {
        let reasons = self.reasons().into_iter().map(|reason| {
            let share = match reason.lost_tokens {
                Some(lost) if lost > 0 => format!(" ({})", percent(self.share(lost))),
                _ => String::new(),
            };
            format!("{} {}{share}", reason.rows, reason.what)
        });
        let mut parts: Vec<String> = reasons.collect();
        if self.lost.dropped > 0 {
            let share = percent(self.share(self.lost.dropped));
            parts.push(format!("bad rows count as rows of mean length ({share})"));
        }
        parts.join(", ")
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} sequences of {} rows, {} tokens",
            self.kept(),
            self.rows,
            self.tokens
        )?;
        let share = 100.0 * self.trained_tokens as f64 / (self.tokens.max(1)) as f64;
        write!(f, ", {} trained ({share:.1} %)", self.trained_tokens)?;
        for reason in self.reasons() {
            write!(f, ", {} {}", reason.rows, reason.what)?;
        }
        match self.lost.total() {
            0 => Ok(()),
            lost => write!(
                f,
                "; {} of the trained tokens are lost",
                percent(self.share(lost))
            ),
        }
    }
}

impl Trains {
    /// Adds a row that stays. `train_on` decides its trained part; `whole` says that all of its
    /// tokens are trained.
    pub(super) fn add(&mut self, format: Format, train_on: TrainOn, answers: Answers, whole: bool) {
        match format {
            Format::InputIds if !whole => self.labelled += 1,
            Format::InputIds | Format::Text | Format::Auto => self.whole += 1,
            _ if train_on == TrainOn::All => self.whole += 1,
            Format::Alpaca | Format::PromptCompletion => self.completions += 1,
            Format::Chat => {
                self.conversations += 1;
                self.answers += u64::from(answers.trained);
                self.untrained_answers += u64::from(answers.untrained);
                self.last_alone += u64::from(answers.last_alone);
            }
        }
        self.empty_answers += u64::from(answers.empty);
    }
}

/// The answers of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answers {
    /// Those that are trained.
    pub trained: u32,
    /// Those that are not.
    pub untrained: u32,
    /// Trained ones without a text.
    pub empty: u32,
    /// Whether earlier answers should be trained but could not be located.
    pub last_alone: bool,
}

impl fmt::Display for Trains {
    /// `every answer of 3,214 conversations (9,870 answers), the completion of 12 prompts`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let (conversations, answers) = (self.conversations, self.answers);
        if conversations > 0 {
            let many = several(conversations, "conversation");
            let left = several(self.untrained_answers, "earlier answer");
            parts.push(match (self.untrained_answers, answers == conversations) {
                (0, true) => format!("the answer of {many}"),
                (0, false) => format!("every answer of {many} ({})", several(answers, "answer")),
                (_, true) => format!("the last answer of {many} and none of {left}"),
                (_, false) => format!(
                    "{} of {many} and none of {left}",
                    several(answers, "answer")
                ),
            });
        }
        for (rows, what, noun) in [
            (self.completions, "the completion of", "prompt"),
            (self.whole, "every token of", "row"),
            (self.labelled, "what labels say of", "row"),
        ] {
            if rows > 0 {
                parts.push(format!("{what} {}", several(rows, noun)));
            }
        }
        f.write_str(&parts.join(", "))
    }
}

/// `1 row`, `3,214 rows`.
fn several(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{} {noun}s", grouped(count)),
    }
}

/// A whole number in groups of three digits: `3,214`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share as `12.3 %`; a share above 0 is never shown as 0.
pub fn percent(share: f64) -> String {
    match share {
        share if share > 0.0 && share < 0.0005 => "under 0.1 %".to_owned(),
        share => format!("{:.1} %", 100.0 * share),
    }
}

#[cfg(test)]
mod tests;
