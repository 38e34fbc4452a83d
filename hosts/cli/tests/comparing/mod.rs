//! Comparisons of two arms beside the dense one, under two seeds, and their files.
#![allow(dead_code)] // Each test uses a part.

use std::fs;
use std::path::Path;
use std::process::Output;

use espalier_torture::training::{Trained, Training, files, trained};
use serde_json::Value as Json;

/// Two arms beside the dense one, under two seeds.
pub const ARMS: &str = "--arms nf4,nf4:block_size=128 --seeds 2";
/// Their folders.
pub const FOLDERS: [&str; 3] = ["dense", "nf4", "nf4-block_size=128"];
pub const SEEDS: [u64; 2] = [42, 43];

/// A run of a few steps for comparisons, with the options `more`.
pub fn training(more: &str) -> Training {
    let more = format!("--plugins lora --set adapter.lora.dropout=0.1 {more}");
    Training::new(&more)
}

/// Runs a comparison to its end.
pub fn compare(training: &Training, out: &str, more: &str) -> Output {
    let mut command = training.command_of("compare", out, more);
    command.output().expect("the host starts")
}

/// Runs a comparison, expects success, and returns its record.
pub fn succeed(training: &Training, out: &str, more: &str) -> Json {
    let output = compare(training, out, more);
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{more}: {words}");
    comparison(training, out)
}

/// The JSON of a file.
pub fn json(path: &Path) -> Json {
    let text = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).expect("JSON")
}

/// The record of a comparison.
pub fn comparison(training: &Training, out: &str) -> Json {
    json(&training.path(out).join("compare.json"))
}

/// The parts of a run that are the same on every path to it: its learned weights and each
/// document's loss.
pub fn run_of(
    training: &Training,
    out: &str,
    arm: &str,
    seed: u64,
) -> (Trained, Vec<(String, Vec<u8>)>) {
    let run = training.path(out).join(format!("arms/{arm}/seed-{seed}"));
    let documents = files(&run.join("held_out")).into_iter().collect();
    (trained(&run), documents)
}

/// An arm's base without its time.
pub fn base_of(training: &Training, out: &str, arm: &str) -> Json {
    let mut base = json(&training.path(out).join(format!("arms/{arm}/base.json")));
    base["encode_secs"] = Json::Null;
    base
}

/// Expects every base and run of `out` to equal that of `whole`.
pub fn same(training: &Training, out: &str, whole: &str) {
    for arm in FOLDERS {
        assert_eq!(
            base_of(training, out, arm),
            base_of(training, whole, arm),
            "{arm}"
        );
        for seed in SEEDS {
            let (found, expected) = (
                run_of(training, out, arm, seed),
                run_of(training, whole, arm, seed),
            );
            assert_eq!(found.0.metrics, expected.0.metrics, "{out}: {arm} {seed}");
            assert!(found == expected, "{out}: {arm} {seed}");
        }
    }
}
