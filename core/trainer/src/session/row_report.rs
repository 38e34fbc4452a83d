//! Rows that were read -> the report to the user: trained and lost rows.

use espalier_data::{Dataset, TOLD_LOST, TrainOn, describe_split_tokens, grouped, percent};
use espalier_engine::observer::{Event, Observer};

use crate::bytes::Bytes;

/// Reports trained and lost rows of `rows`, called `which`; important losses are warnings.
pub(super) fn report(rows: &Dataset, which: &str, observer: &dyn Observer) {
    let counts = rows.counts();
    if !counts.reasons().is_empty() {
        let lost = match counts.lost.total() {
            0 => "none of the trained tokens is lost".to_owned(),
            lost => format!(
                "{} of the trained tokens are lost",
                percent(counts.share(lost))
            ),
        };
        let text = format!(
            "of {} {which} rows {}; {lost}",
            counts.rows,
            counts.summary()
        );
        if counts.tells() {
            observer.observe(&Event::Warning(&text))
        } else {
            observer.observe(&Event::Note(&text))
        }
    }
    if let Some(text) = describe_split_tokens(rows.split_tokens()) {
        if rows.split_tokens().iter().any(|one| one.ends_answers) {
            observer.observe(&Event::Warning(&text))
        } else {
            // Some models are built this way: zephyr's turns start with plain text.
            observer.observe(&Event::Note(&text))
        }
    }
    let trains = counts.trains;
    if trains.last_alone > 0 {
        observer.observe(&Event::Warning(&format!(
            "of {} conversations only the last answer is trained: in the chat template, earlier answers change when \
             more turns follow; mark answers with {{% generation %}} in it, or set data.train_on = \
             \"completion\" to say so",
            grouped(trains.last_alone)
        )));
    }
    if trains.empty_answers > 0 {
        let text = format!(
            "{} answers of {which} conversations are empty and train nothing but their end; correct or remove them",
            grouped(trains.empty_answers)
        );
        let answers = (trains.answers + trains.completions).max(1);
        if trains.empty_answers as f64 / answers as f64 > TOLD_LOST {
            observer.observe(&Event::Warning(&text))
        } else {
            observer.observe(&Event::Note(&text))
        }
    }
    let bytes = rows.file_bytes();
    if bytes > 0 {
        let text = format!("{} of {which} tokens are in a temporary file", Bytes(bytes));
        observer.observe(&Event::Note(&text));
    }
}

/// Reports how many of `rows`, called `which`, are longer than each of the model's `limits`.
pub(super) fn lengths(rows: &Dataset, which: &str, limits: &[u64], observer: &dyn Observer) {
    for &limit in limits {
        let all = rows.num_sequences();
        let is_long = |index: &usize| rows.length(*index) as u64 > limit;
        let long = (0..all).filter(is_long).count();
        if long > 0 {
            observer.observe(&Event::Note(&format!(
                "{} of {} {which} rows are longer than {limit} tokens: the model rotates them by \
                 the long factors of its positions, the others by the short ones",
                grouped(long as u64),
                grouped(all as u64)
            )));
        }
    }
}

/// The trained part of the rows, in one line.
pub(super) fn trained(rows: &Dataset, chosen: TrainOn) -> String {
    let counts = rows.counts();
    let trains = counts.trains;
    let other = if chosen == TrainOn::Auto && trains.answers > trains.conversations {
        " (data.train_on = \"completion\" trains the last answer alone)"
    } else {
        ""
    };
    format!(
        "trains {trains}: {} of {} tokens{other}",
        grouped(counts.trained_tokens),
        grouped(counts.tokens)
    )
}
