//! What an arm saves in bits and costs in loss -> a sentence an arm.

use super::pair::Pair;
use super::reading::Numbers;
use super::row::ArmRow;
use crate::compare::statistics::{Difference, Interval};
use crate::report::number::{decimals, percent, signed, significant};

/// A sentence for each arm beside the yardstick; where there is none, beside the first arm.
pub fn sentences(numbers: Numbers<'_>) -> Vec<String> {
    let measure = numbers.findings.yardstick().unwrap_or_default();
    let beside = numbers
        .pairs
        .iter()
        .filter(|pair| pair.places[1] == measure);
    beside.filter_map(|pair| sentence(numbers, pair)).collect()
}

fn sentence(numbers: Numbers<'_>, pair: &Pair) -> Option<String> {
    let difference = pair.difference.as_ref()?;
    let [row, measure] = pair.places.map(|place| &numbers.rows[place]);
    let size = match (row.bits_per_weight, measure.bits_per_weight) {
        (Some(bits), Some(whole)) if significant(bits, 3) != significant(whole, 3) => format!(
            "takes {} bits a weight in place of {} and ",
            significant(bits, 3),
            significant(whole, 3)
        ),
        _ => String::new(),
    };
    let side = if difference.estimate < 0.0 {
        "below"
    } else {
        "above"
    };
    let ends = if numbers.findings.comparison.eval_only {
        "lies"
    } else {
        "ends"
    };
    let width = difference.interval.width();
    let digits = decimals(width);
    Some(format!(
        "{} {size}{ends} {:.digits$} nats {side} {} (95 % interval {}{}), {} in perplexity: {}.{}",
        row.name,
        difference.estimate.abs(),
        measure.name,
        shown(difference.interval),
        if difference.has_verdict() {
            ""
        } else {
            " over documents"
        },
        percent_change(difference.estimate.exp() - 1.0),
        judgement(pair, difference),
        recovered(row, measure, pair, difference).unwrap_or_default(),
    ))
}

/// `+0.021 to +0.042`.
pub fn shown(interval: Interval) -> String {
    let [low, high] = interval.0.map(|end| signed(end, interval.width()));
    format!("{low} to {high}")
}

fn percent_change(share: f64) -> String {
    match percent(share.abs()) {
        size if size == percent(0.0) => format!("{size} apart"),
        size if share < 0.0 => format!("\u{2212}{size}"),
        size => format!("+{size}"),
    }
}

/// What a difference comes to, in a few words.
pub fn judgement(pair: &Pair, difference: &Difference) -> &'static str {
    match (
        difference.has_verdict(),
        pair.is_real,
        pair.is_below_noise_floor,
    ) {
        (false, _, _) => "no verdict",
        (true, false, _) => "within noise",
        (true, true, true) => "real, below the noise floor",
        (true, true, false) => "real",
    }
}

/// How much of what packing cost before training is made up for after it.
fn recovered(row: &ArmRow, measure: &ArmRow, pair: &Pair, after: &Difference) -> Option<String> {
    let before = pair
        .before
        .as_ref()
        .filter(|before| before.is_real() && before.estimate > 0.0)?;
    row.after.and(measure.after)?;
    let left = after.estimate / before.estimate;
    let gap = significant(before.estimate, 2);
    let text = match left {
        ..=0.0 => "training made up for all of it".to_owned(),
        0.0..0.95 => format!("training made up for {}", percent(1.0 - left)),
        0.95..1.05 => "training changed nothing in that".to_owned(),
        _ => "training widened the gap".to_owned(),
    };
    Some(format!(" Before training the gap was {gap}: {text}."))
}
