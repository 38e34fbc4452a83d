//! A report's statements on a run: supported by its numbers, for any numbers.
#![allow(clippy::print_stdout)] // Figures, for whoever looks.

mod reading;

use std::fs;
use std::path::{Path, PathBuf};

use espalier_report::{Basis, Direction, Report, RunVerdict};
use serde_json::{Value as Json, json};

use reading::{Outcome, check};

/// Random outcomes; see `reading/outcome.rs`.
const OUTCOMES: u64 = 10_000;
/// Every n-th outcome also gets a page.
const PAGE_EVERY: u64 = 20;

#[test]
fn ten_thousand_random_outcomes_give_no_text_that_contradicts_its_numbers() {
    let place = tempfile::tempdir().expect("a folder");
    let mut seen = std::collections::BTreeMap::<String, u64>::new();
    for number in 0..OUTCOMES {
        let outcome = Outcome::random(number);
        outcome.write(place.path());
        let report = Report::of(place.path()).expect("a report");
        let page = number.is_multiple_of(PAGE_EVERY).then(|| report.to_html());
        let report = serde_json::to_value(&report).expect("plain data");
        if let Err(why) = check(&outcome, &report, page.as_deref()) {
            panic!(
                "outcome {number}: {why}\n{:#}\n{:#}",
                report["reading"], report["facts"]
            );
        }
        let verdict = report["reading"]["verdict"].as_str().expect("a name");
        *seen.entry(verdict.to_owned()).or_default() += 1;
    }
    println!("{seen:?}");
    // Each verdict occurred; otherwise the test would show little.
    assert!(
        seen.len() == 7 && seen.values().all(|count| *count >= 100),
        "{seen:?}"
    );
}

/// Checks the checker: it detects texts of other numbers.
#[test]
fn a_text_of_other_numbers_is_detected() {
    let place = tempfile::tempdir().expect("a folder");
    let mut found = 0;
    for number in 0..200 {
        let outcome = Outcome::random(number);
        outcome.write(place.path());
        let report = Report::of(place.path()).expect("a report");
        let mut report = serde_json::to_value(&report).expect("plain data");
        let sentence = report["reading"]["sentences"][0].as_str().expect("words");
        let falsified = match sentence {
            text if text.contains(" fell from ") => text.replace(" fell from ", " rose from "),
            text if text.contains(" rose from ") => text.replace(" rose from ", " fell from "),
            text if text.contains("hardly moved") => text.replace(" hardly moved, ", " fell "),
            _ => continue,
        };
        report["reading"]["sentences"][0] = json!(falsified);
        assert!(
            check(&outcome, &report, None).is_err(),
            "{number}: {falsified}"
        );
        found += 1;
    }
    assert!(found > 50, "{found}");
}

fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden/runs")
        .join(name)
}

/// The quickstart run's files: its losses, and those of each held-out question.
#[test]
fn the_quickstart_learned() {
    let report = Report::of(&recorded("quickstart")).expect("a report");
    assert_eq!(
        report.reading.verdict,
        RunVerdict::Learned,
        "{}",
        report.reading
    );
    let held_out = report.facts.held_out.expect("it was evaluated twice");
    assert_eq!(
        (held_out.direction, held_out.basis),
        (Direction::Fell, Basis::Rows)
    );
    assert_eq!(held_out.count, 306);
    // Without the held-out losses by row, and without any held-out rows, the metrics give the same
    // statement.
    let place = tempfile::tempdir().expect("a folder");
    for name in ["run.json", "metrics.jsonl"] {
        fs::copy(recorded("quickstart").join(name), place.path().join(name)).expect("copied");
    }
    let report = Report::of(place.path()).expect("a report");
    assert_eq!(
        report.reading.verdict,
        RunVerdict::Learned,
        "{}",
        report.reading
    );
    assert!(
        report.reading.to_string().contains("these rows only"),
        "{}",
        report.reading
    );
    let metrics = fs::read_to_string(place.path().join("metrics.jsonl")).expect("metrics");
    let steps = metrics.lines().filter(|line| !line.contains("eval_loss"));
    let steps: Vec<&str> = steps.collect();
    fs::write(place.path().join("metrics.jsonl"), steps.join("\n")).expect("written");
    let report = Report::of(place.path()).expect("a report");
    assert_eq!(
        report.reading.verdict,
        RunVerdict::Learned,
        "{}",
        report.reading
    );
    let training = report.facts.training.expect("steps");
    assert_eq!(training.basis, Basis::Steps);
}

/// The losses of fifteen runs with a learning rate of 1e-15. The means of the first and the last
/// tenth of the steps differ by more than 2 % in fourteen.
#[test]
fn untrained_runs_are_not_reported_as_changed() {
    let text = fs::read_to_string(recorded("untrained.json")).expect("losses");
    let runs: Vec<Json> = serde_json::from_str(&text).expect("JSON");
    let place = tempfile::tempdir().expect("a folder");
    let mut changed = Vec::new();
    for run in &runs {
        fs::write(place.path().join("run.json"), "{}").expect("written");
        let losses = run["losses"].as_array().expect("losses").iter();
        let tokens = run["trained_tokens"].as_array().expect("tokens");
        let lines = losses
            .zip(tokens)
            .enumerate()
            .map(|(index, (loss, tokens))| {
                json!({"step": index + 1, "loss": loss, "trained_tokens": tokens}).to_string()
            });
        let lines: Vec<String> = lines.collect();
        fs::write(place.path().join("metrics.jsonl"), lines.join("\n")).expect("written");
        let report = Report::of(place.path()).expect("a report");
        let verdict = report.reading.verdict;
        if matches!(
            verdict,
            RunVerdict::Learned | RunVerdict::GotWorse | RunVerdict::Diverged
        ) {
            changed.push(report.reading.to_string());
        }
    }
    assert_eq!(runs.len(), 15);
    assert!(changed.len() <= 1, "{changed:#?}");
}
