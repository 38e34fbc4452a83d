//! The arms' memory, time, accuracy and perplexity -> a panel of bars for each.

use espalier_interface::bytes::Bytes;
use espalier_system::number::{percent, significant};
use serde::Serialize;

use super::quality::Quality;
use super::row::ArmRow;

/// A number of every arm as bars from 0.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BarPanel {
    title: &'static str,
    unit: &'static str,
    bars: Vec<ArmBar>,
}

/// An arm's bar; without a length where its number is unknown.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct ArmBar {
    name: String,
    colour: usize,
    /// Length in percent of the longest.
    percent: f64,
    text: String,
}

/// A panel: its title, the number's unit, the number of an arm, and that as text.
type Panel = (
    &'static str,
    &'static str,
    fn(&ArmRow) -> Option<f64>,
    fn(f64) -> String,
);

const PANELS: [Panel; 4] = [
    ("Peak memory", "most that was held", held, |bytes| {
        Bytes(bytes as u64).to_string()
    }),
    (
        "Step time",
        "seconds, mean",
        |row| row.secs_per_step,
        |secs| significant(secs, 3),
    ),
    (
        "Token accuracy",
        "held-out",
        |row| quality(row, |quality| quality.token_accuracy),
        percent,
    ),
    (
        "Perplexity",
        "held-out",
        |row| quality(row, |quality| quality.perplexity),
        |perplexity| significant(perplexity, 4),
    ),
];

/// The panels whose number at least two arms have.
pub fn measures(rows: &[ArmRow], colour: impl Fn(usize) -> usize) -> Vec<BarPanel> {
    let panel = |&(title, unit, number, text): &Panel| {
        let numbers: Vec<Option<f64>> = rows.iter().map(number).collect();
        let known = || numbers.iter().copied().flatten();
        let longest = known().fold(0.0f64, f64::max);
        if known().count() < 2 || longest == 0.0 {
            return None;
        }
        let bar = |(place, number): (usize, &Option<f64>)| ArmBar {
            name: rows[place].name.clone(),
            colour: colour(place),
            percent: number.unwrap_or(0.0) / longest * 100.0,
            text: number.map(text).unwrap_or_default(),
        };
        let bars = numbers.iter().enumerate().map(bar).collect();
        Some(BarPanel { title, unit, bars })
    };
    PANELS.iter().filter_map(panel).collect()
}

fn held(row: &ArmRow) -> Option<f64> {
    let peak = row.memory.as_ref()?.observed_peak_bytes;
    (peak > 0).then_some(peak as f64)
}

fn quality(row: &ArmRow, of: fn(&Quality) -> f64) -> Option<f64> {
    row.quality
        .as_ref()
        .map(of)
        .filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, secs: Option<f64>, loss: Option<f64>) -> ArmRow {
        ArmRow {
            name: name.to_owned(),
            secs_per_step: secs,
            quality: loss.map(|loss| Quality {
                loss,
                perplexity: loss.exp(),
                token_accuracy: 0.5,
            }),
            ..ArmRow::default()
        }
    }

    #[test]
    fn bars_are_shares_of_the_longest_and_unknown_ones_are_empty() {
        let rows = [
            row("dense", Some(2.0), Some(0.0)),
            row("nf4", Some(0.5), Some(1.0)),
            row("failed", None, None),
        ];
        let found = measures(&rows, |place| place);
        let titles: Vec<&str> = found.iter().map(|measure| measure.title).collect();
        assert_eq!(titles, ["Step time", "Token accuracy", "Perplexity"]);
        let lengths: Vec<f64> = found[0].bars.iter().map(|bar| bar.percent).collect();
        assert_eq!(lengths, [100.0, 25.0, 0.0]);
        let texts: Vec<&str> = found[2].bars.iter().map(|bar| bar.text.as_str()).collect();
        assert_eq!(texts, ["1", "2.718", ""]);
    }

    #[test]
    fn a_number_of_one_arm_alone_compares_nothing() {
        let rows = [row("dense", Some(2.0), None), row("failed", None, None)];
        assert_eq!(measures(&rows, |place| place), []);
    }
}
