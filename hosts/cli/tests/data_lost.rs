//! Rows that lose trained tokens -> a refusal, or counts by reason in every output about the run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value as Json, json};

/// A folder with nine rows whose trained tokens follow the 16th token, and one row that fits.
struct Rows {
    folder: tempfile::TempDir,
}

impl Rows {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let long = |start: i32| {
            let ids: Vec<i32> = (0..20).map(|id| 10 + start + id).collect();
            let labels = ids.iter().enumerate();
            let labels = labels.map(|(at, &id)| if at < 16 { -100 } else { id });
            json!({"input_ids": ids, "labels": labels.collect::<Vec<_>>()})
        };
        let mut rows: String = (0..9).map(|row| format!("{}\n", long(3 * row))).collect();
        rows += "{\"input_ids\": [5, 6, 7, 8, 9]}\n";
        fs::write(folder.path().join("rows.jsonl"), rows).expect("written");
        Rows { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The program's `command` on these rows, cut to 16 tokens.
    fn host(&self, command: &str, more: &str) -> Output {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/llama/tiny");
        let mut host = Command::new(env!("CARGO_BIN_EXE_host"));
        host.current_dir(self.folder.path());
        host.env("XDG_DATA_HOME", self.path("data"));
        host.args(command.split_whitespace());
        host.args("--data rows.jsonl --set model.compute=f32 --set data.max_seq_len=16".split(' '));
        host.arg("--model").arg(model);
        host.args(more.split_whitespace());
        host.output().expect("the program starts")
    }

    fn json(&self, name: &str) -> Json {
        let text = fs::read_to_string(self.path(name)).expect(name);
        serde_json::from_str(&text).expect(name)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

const TRAIN: &str = "train --quiet --threads 1 --plugins lora --set run.max_steps=1 --out out";
/// 9 rows of 4 tokens are lost; 4 tokens are trained.
const LOST: &str = "90.0 % of the trained tokens";
const WHY: &str = "9 left out: the prompt fills data.max_seq_len (90.0 %)";

#[test]
fn a_run_that_would_lose_most_of_its_tokens_stops_before_training() {
    let rows = Rows::new();
    for command in [TRAIN, "eval --quiet"] {
        let refused = rows.host(command, "");
        let error = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(3), "{command}: {error}");
        for part in [
            LOST,
            WHY,
            "data.max_lost = 0.1",
            "20 tokens",
            "data.too_long",
        ] {
            assert!(error.contains(part), "{command}: {part} in {error}");
        }
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    assert!(!rows.path("out/run.json").exists());
    // The directory is free for the next run.
    let done = rows.host(TRAIN, "--set data.max_lost=0.9");
    assert!(done.status.success(), "{}", text(&done.stderr));
}

#[test]
fn accepted_losses_are_reported_in_every_output_about_the_run() {
    let rows = Rows::new();
    let chosen = "--set data.too_long=truncate";
    let done = rows.host(TRAIN, chosen);
    let reported = text(&done.stderr);
    assert!(done.status.success(), "{reported}");
    // Even with --quiet.
    let warning = format!("warning: of 10 training rows {WHY}; {LOST} are lost");
    assert!(reported.contains(&warning), "{reported}");
    let summary = text(&done.stdout);
    assert!(
        summary.contains("rows      1 sequences of 10 rows") && summary.contains(LOST),
        "{summary}"
    );
    let counts = &rows.json("out/run.json")["data"]["counts"];
    assert_eq!(
        (&counts["rows"], &counts["prompt_fills"]),
        (&json!(10), &json!(9))
    );
    assert_eq!(counts["lost"]["prompt_fills"], 36);
    assert_eq!(counts["trained_tokens"], 4);
    let metrics = fs::read_to_string(rows.path("out/metrics.jsonl")).expect("metrics");
    let first: Json = serde_json::from_str(metrics.lines().next().expect("a line")).expect("JSON");
    assert_eq!((&first["step"], &first["data"]), (&json!(1), counts));
    let report = rows.json("out/report.json");
    assert_eq!(report["rows"]["training"]["counts"], *counts);
    assert_eq!(report["rows"]["training"]["lost_share"], 0.9);
    assert_eq!(report["rows"]["training"]["reasons"][0]["rows"], 9);
    assert_eq!(
        (&report["evals"], &report["headline"]["steps"]),
        (&json!([]), &json!(1))
    );
    let page = fs::read_to_string(rows.path("out/report.html")).expect("a page");
    assert!(
        page.contains("the prompt fills data.max_seq_len") && page.contains(LOST)
            || page.contains("90.0 %"),
        "{page}"
    );

    let evaluated = rows.host("eval --quiet --json", chosen);
    let reported = text(&evaluated.stderr);
    assert!(
        reported.contains("warning: of 10 evaluation rows"),
        "{reported}"
    );
    let found: Json = serde_json::from_slice(&evaluated.stdout).expect("JSON");
    assert_eq!(found["counts"]["prompt_fills"], 9);
    let shown = text(&rows.host("eval --quiet", chosen).stdout);
    assert!(shown.contains("rows: 1 sequences of 10 rows"), "{shown}");
}

#[test]
fn dropped_bad_rows_count_toward_the_limit() {
    let rows = Rows::new();
    let good = "{\"input_ids\": [5, 6, 7, 8, 9]}\n".repeat(8);
    fs::write(
        rows.path("rows.jsonl"),
        format!("{good}{{\"input_ids\": 3}}\n"),
    )
    .expect("written");
    let drop = "--set data.on_bad_row=drop";
    let refused = rows.host(TRAIN, drop);
    let error = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{error}");
    assert!(
        error.contains("11.1 % of the trained tokens")
            && error.contains("1 left out: wrong fields"),
        "{error}"
    );
    // `data.too_long=truncate` does not permit bad rows.
    let chosen = format!("{drop} --set data.too_long=truncate");
    assert_eq!(rows.host(TRAIN, &chosen).status.code(), Some(3));
    let more = format!("{drop} --set data.max_lost=0.2");
    assert!(rows.host(TRAIN, &more).status.success());
    let held_out = "--set data.eval_files=[\"held.jsonl\"]";
    fs::write(rows.path("rows.jsonl"), good).expect("written");
    fs::write(
        rows.path("held.jsonl"),
        format!("{{\"input_ids\": {:?}}}\n", [5; 40]),
    )
    .expect("written");
    let refused = rows.host("train --quiet --plugins lora --out held", held_out);
    let error = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{error}");
    assert!(
        error.contains("of the held-out rows would be lost"),
        "{error}"
    );
}

#[test]
fn a_run_prints_in_one_line_what_it_trains() {
    let rows = Rows::new();
    fs::write(
        rows.path("rows.jsonl"),
        "{\"input_ids\": [5, 6, 7, 8, 9]}\n",
    )
    .expect("written");
    let line = TRAIN.replace("--quiet ", "");
    let reported = text(&rows.host(&line, "").stderr);
    let lines: Vec<&str> = reported
        .lines()
        .filter(|line| line.contains("trains "))
        .collect();
    assert_eq!(
        lines,
        ["note: trains every token of 1 row: 4 of 5 tokens"],
        "{reported}"
    );
}
