//! A sentence on a loss -> its claim.

use super::words::{ensure, number};

/// The claim of a sentence on a loss.
pub struct Claim<'a> {
    pub held_out: bool,
    pub verb: Verb,
    /// As printed.
    pub ends: [&'a str; 2],
    /// In percent: the estimate, and the ends of the interval.
    pub moved: Option<f64>,
    pub interval: Option<[f64; 2]>,
    pub rows: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verb {
    Fell,
    Rose,
    HardlyMoved,
    Uncertain,
}

/// `The training loss fell from 4 to 3 (-25.0 %, 95 % interval -30.0 % to -20.0 % over 9 rows).`
pub fn claim(first: &str) -> Result<Claim<'_>, String> {
    let (whether, rest) = match first.strip_prefix("Whether the ") {
        Some(rest) => (true, rest),
        None => (false, first.strip_prefix("The ").ok_or("no claim")?),
    };
    let held_out = rest.starts_with("loss on rows that were not trained on ");
    ensure(
        held_out || rest.starts_with("training loss "),
        "of which loss?",
    )?;
    let verbs = [
        (" fell from ", Verb::Fell),
        (" rose from ", Verb::Rose),
        (" hardly moved, from ", Verb::HardlyMoved),
        (" changed is not certain: it went from ", Verb::Uncertain),
    ];
    let at = verbs
        .iter()
        .filter_map(|(words, verb)| Some((rest.find(words)?, words, *verb)));
    let (at, words, verb) = at.min_by_key(|(at, ..)| *at).ok_or("no verb")?;
    ensure(whether == (verb == Verb::Uncertain), "whether")?;
    let rest = &rest[at + words.len()..];
    let (ends, rest) = rest.split_once(" (").ok_or("no change")?;
    let (before, after) = ends.split_once(" to ").ok_or("no ends")?;
    let (change, _) = rest.split_once(")").ok_or("no end")?;
    let (change, rows) = match change.split_once(" over ") {
        Some((change, rows)) => (change, rows.trim_end_matches(" rows").parse().ok()),
        None => (change, None),
    };
    let percent = |text: &str| number(text.trim_end_matches(" %"));
    let (moved, interval) = match change.split_once(", 95 % interval ") {
        _ if !change.contains('%') || change.contains("nats") => (None, None),
        Some((moved, interval)) => {
            let (low, high) = interval.split_once(" to ").ok_or("no interval")?;
            (Some(percent(moved)?), Some([percent(low)?, percent(high)?]))
        }
        None => (Some(percent(change)?), None),
    };
    // In nats an interval is also possible.
    let interval = if change.contains("nats") && change.contains("interval") {
        Some([0.0, 0.0])
    } else {
        interval
    };
    Ok(Claim {
        held_out,
        verb,
        ends: [before, after],
        moved,
        interval,
        rows,
    })
}
