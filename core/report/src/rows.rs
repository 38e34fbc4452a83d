//! The row counts of `run.json` -> trained and lost rows, by reason.

use espalier_data::{Counts, Reason, SplitToken, describe_split_tokens, grouped, percent};
use serde::Serialize;

use super::page::Row;
use super::record::DataRecord;

/// Trained and lost rows; empty for runs that did not record them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Rows {
    /// The trained part of a row, in words.
    pub trained: Option<String>,
    /// Rows of the training files.
    pub training: Option<Part>,
    /// Rows of the held-out files, where these are separate files.
    pub held_out: Option<Part>,
    /// Special tokens that the chat template writes and the tokenizer splits.
    pub split_tokens: Vec<SplitToken>,
}

/// The rows of some files.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// Their counts.
    pub counts: Counts,
    /// The share of the trained tokens that is lost.
    pub lost_share: f64,
    /// All reasons.
    pub reasons: Vec<Reason>,
}

impl Part {
    fn new(counts: Counts) -> Self {
        Part {
            lost_share: counts.share(counts.lost.total()),
            reasons: counts.reasons(),
            counts,
        }
    }
}

impl Rows {
    /// The rows of `record`.
    pub fn of(record: &DataRecord) -> Self {
        Rows {
            trained: record.counts.map(|counts| {
                let (trained, tokens) = (counts.trained_tokens, counts.tokens);
                let (trained, tokens) = (grouped(trained), grouped(tokens));
                format!("Trains {}: {trained} of {tokens} tokens.", counts.trains)
            }),
            training: record.counts.map(Part::new),
            held_out: record.eval_counts.map(Part::new),
            split_tokens: record.split_tokens.clone().unwrap_or_default(),
        }
    }

    /// The important facts, a sentence each.
    pub fn sentences(&self) -> Vec<String> {
        let parts = [("training", &self.training), ("held-out", &self.held_out)];
        let parts = parts
            .into_iter()
            .filter_map(|(which, part)| Some((which, part.as_ref()?)));
        let lost = parts.filter(|(_, part)| !part.reasons.is_empty());
        let lost = lost.map(|(which, part)| {
            let rows = part.counts.rows;
            let share = percent(part.lost_share);
            format!(
                "Of {rows} {which} rows {}; {share} of their trained tokens are lost.",
                part.counts.summary()
            )
        });
        let split =
            describe_split_tokens(&self.split_tokens).map(|text| format!("Split tokens: {text}."));
        lost.chain(split).collect()
    }

    /// The reasons as lines of a table: rows, reason, count, lost share of the trained tokens.
    pub fn table(&self) -> Vec<Row> {
        let parts = [("trained on", &self.training), ("held out", &self.held_out)];
        let parts = parts
            .into_iter()
            .filter_map(|(which, part)| Some((which, part.as_ref()?)));
        parts
            .flat_map(|(which, part)| part.reasons.iter().map(move |reason| (which, part, reason)))
            .map(|(which, part, reason)| {
                let share = reason
                    .lost_tokens
                    .map(|lost| percent(part.counts.share(lost)));
                Row(vec![
                    which.to_owned(),
                    reason.what.to_owned(),
                    grouped(reason.rows),
                    share.unwrap_or_default(),
                ])
            })
            .collect()
    }
}
