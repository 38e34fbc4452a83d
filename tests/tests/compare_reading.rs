//! Comparisons of any outcome -> headline, sentences and table: no sentence contradicts the table,
//! and the table contradicts no number.
#![allow(clippy::print_stdout)] // Figures, for whoever looks.

mod verdicts;

use std::collections::BTreeMap;

use espalier_compare::report::{Reading, Summary, Table};

use verdicts::{Lines, check, outcome};

const OUTCOMES: u64 = 10_000;
const DRAWS: u32 = 40;

#[test]
fn no_outcome_gives_a_text_that_contradicts_its_table() {
    let mut headlines: BTreeMap<String, usize> = BTreeMap::new();
    for index in 0..OUTCOMES {
        let findings = outcome(index);
        let summary = Summary::of(&findings, DRAWS);
        let checked = std::panic::catch_unwind(|| check(&summary, &findings));
        if checked.is_err() {
            let table = Table::new(&summary.arms).to_text();
            panic!(
                "outcome {index}:\n{table}{}\n{:?}",
                summary.reading, summary.facts.obstacle
            );
        }
        let kind = summary
            .reading
            .headline
            .replace(|letter: char| letter.is_ascii_digit(), "");
        *headlines
            .entry(kind.chars().take(24).collect())
            .or_default() += 1;
    }
    println!("{headlines:#?}");
    // All kinds of outcome occurred.
    for (words, fewest) in [
        ("arm is best", 200),
        ("arm is closest to", 20),
        ("No difference was found", 300),
        ("Too few seeds", 300),
        ("No winner without", 50),
        ("No winner: worse", 300),
        ("Nothing to compare", 100),
    ] {
        let seen = headlines
            .iter()
            .filter(|(headline, _)| headline.starts_with(words));
        let seen: usize = seen.map(|(_, count)| count).sum();
        assert!(seen >= fewest, "{words:?} {seen} times");
    }
}

/// The statements of a text, changed to false ones, if the table has the rows needed for either.
fn falsified(summary: &Summary) -> Vec<Reading> {
    let lines = Lines::of(summary);
    let mut texts = Vec::new();
    let mut turn = |change: &dyn Fn(&str) -> String| {
        let reading = &summary.reading;
        texts.push(Reading {
            headline: change(&reading.headline),
            sentences: reading.sentences.iter().map(|text| change(text)).collect(),
            verdict: reading.verdict,
        });
    };
    // Swap two arms.
    let [leader, others] = [["best", "lowest"], ["worse", "not told apart"]].map(|verdicts| {
        let names = verdicts.map(|verdict| lines.all(verdict));
        names.concat()
    });
    if let ([leader], [other, ..]) = (leader.as_slice(), others.as_slice()) {
        turn(&|text| {
            let text = text.replace(leader, "the other").replace(other, leader);
            text.replace("the other", other)
        });
    }
    let headline = summary.reading.headline.as_str();
    if headline.contains(" is best") || headline.contains(" is closest") {
        turn(&|text| {
            if text == headline {
                "No difference was found".to_owned()
            } else {
                text.to_owned()
            }
        });
    }
    if let [lowest] = lines.all("lowest").as_slice() {
        turn(&|text| {
            if text == headline {
                format!("{lowest} is best")
            } else {
                text.to_owned()
            }
        });
    }
    // The arms above the lowest are all named, or none.
    if !lines.all("worse").is_empty() && !lines.all("not told apart").is_empty() {
        turn(
            &|text| match text.split_once(" above it by more than noise") {
                Some((before, rest)) => {
                    let (first, _) = before.rsplit_once("; ").expect("two parts");
                    format!("{first}; all others are above it by more than noise{rest}")
                }
                None => text.to_owned(),
            },
        );
        turn(&|text| match text.split_once("; ") {
            Some((first, rest)) if rest.contains(" above it by more than noise") => {
                format!("{first}; no other can be distinguished from it.")
            }
            _ => text.to_owned(),
        });
    }
    texts
}

/// Checks the checker: each false text fails.
#[test]
fn a_false_text_is_detected() {
    let mut seen = 0;
    for index in 0..2000 {
        let findings = outcome(index);
        let summary = Summary::of(&findings, DRAWS);
        for reading in falsified(&summary) {
            let other = Summary {
                reading,
                ..summary.clone()
            };
            let checked = std::panic::catch_unwind(|| check(&other, &findings));
            assert!(checked.is_err(), "outcome {index}: {}", other.reading);
            seen += 1;
        }
    }
    assert!(seen > 500, "{seen}");
}
