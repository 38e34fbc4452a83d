//! The report: one self-contained file, for any contents of a run's directory.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Instant;

use espalier_report::{Report, RunVerdict};
use serde_json::{Value as Json, json};

/// A directory with the record of a run and these metrics.
fn run(metrics: &[u8], edit: impl FnOnce(&mut Json)) -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a folder");
    let mut record = json!({
        "espalier": "0.1.0",
        "config": {"run": {"out": "x", "threads": 2}, "optim": {"clip_norm": 1.0},
                   "adapter": {"lora": {"rank": 8}}},
        "plugins": [
            {"component": "nf4", "role": "quantizer", "plugin": "nf4", "version": "0.1.0",
             "abi": [0, 1], "sha256": null, "file": null},
            {"component": "lora", "role": "adapter", "plugin": "lora", "version": "0.1.0",
             "abi": [0, 1], "sha256": "00ff", "file": "/plugins/liblora.so"},
        ],
        "model": {"path": "models/llama", "num_params": 1000, "num_trained_params": 10},
        "data": {"files": [{"path": "a.jsonl", "rows": 5, "sha256": "ab"}], "total_steps": 120},
        "memory": {"weights": 600_000, "arena": 400_000},
    });
    edit(&mut record);
    fs::write(place.path().join("run.json"), record.to_string()).expect("written");
    fs::write(place.path().join("metrics.jsonl"), metrics).expect("written");
    place
}

/// `steps` steps of a loss that falls, with an evaluation every `eval_every`.
fn falling(steps: u64, eval_every: u64) -> String {
    let mut lines = String::new();
    for step in 0..=steps {
        let loss = 1.0 + 3.0 / (1.0 + step as f64 * 10.0 / steps as f64);
        if step > 0 {
            let line = json!({
                "step": step, "loss": loss + 0.2 * (step as f64 * 1.7).sin(), "grad_norm": 0.5,
                "learning_rate": 2e-4, "trained_tokens": 100, "tokens_per_sec": 1000.0,
                "step_secs": 0.25, "peak_host_bytes": 990_000, "peak_device_bytes": 0,
                "speed_of_light": 0.5,
            });
            writeln!(lines, "{line}").expect("written");
        }
        if step % eval_every == 0 {
            let line = json!({
                "step": step, "eval_loss": loss, "eval_perplexity": loss.exp(),
                "eval_token_accuracy": 1.0 / loss, "eval_exact_match": 0.5 / loss,
            });
            writeln!(lines, "{line}").expect("written");
        }
    }
    lines
}

fn page(place: &Path) -> String {
    let report = Report::of(place).expect("a report");
    let path = report.write(place).expect("written");
    fs::read_to_string(path).expect("a page")
}

/// What is between every `begin` and the next `end`.
fn between<'a>(text: &'a str, begin: &'a str, end: &'a str) -> impl Iterator<Item = &'a str> {
    let parts = text.split(begin).skip(1);
    parts.filter_map(move |part| Some(part.split_once(end)?.0))
}

#[test]
fn the_page_agrees_with_the_metrics_and_is_self_contained() {
    let place = run(falling(120, 20).as_bytes(), |_| {});
    fs::create_dir(place.path().join("adapter")).expect("created");
    let page = page(place.path());
    for words in [
        "Learned",
        "models&#x2f;llama",
        "<b></b>",
        "Peak memory",
        "1.0 % below the plan",
    ] {
        assert!(page.contains(words), "no {words:?}");
    }
    for foreign in ["http:", "https:", "src=", "href=", "url(", "@import"] {
        assert!(!page.contains(foreign), "{foreign:?}");
    }
    let charts = between(&page, r#"<script type="application/json">"#, "</script>");
    let titles = between(&page, r#"<span class="chart-title">"#, "<").count();
    let mut read = 0;
    for chart in charts {
        let chart: Json = serde_json::from_str(chart).expect("JSON");
        let curve = &chart["curves"][0];
        let (x, y) = (curve["x"].as_array(), curve["y"].as_array());
        assert_eq!(x.map(Vec::len), y.map(Vec::len));
        read += 1;
    }
    assert_eq!((read, titles), (7, 7));

    let numbers = fs::read(place.path().join("report.json")).expect("numbers");
    let numbers: Json = serde_json::from_slice(&numbers).expect("JSON");
    let headline = &numbers["headline"];
    assert_eq!(headline["steps"], 120);
    assert_eq!(
        (&headline["tokens"], &headline["secs"]),
        (&json!(30_000), &json!(30.0))
    );
    assert_eq!(headline["eval_before"]["loss"], 4.0);
    assert_eq!(headline["eval_after"]["step"], 120);
    assert_eq!(numbers["memory"]["planned_peak_bytes"], 1_000_000);
    assert_eq!(numbers["reading"]["verdict"], "learned");
}

#[test]
fn a_report_depends_on_the_directory_alone_and_its_identity_on_the_result_options() {
    let metrics = falling(10, 5);
    let place = run(metrics.as_bytes(), |_| {});
    assert_eq!(page(place.path()), page(place.path()));
    let identity = |edit: &dyn Fn(&mut Json)| {
        let place = run(metrics.as_bytes(), |record| edit(record));
        Report::of(place.path()).expect("a report").identity
    };
    let first = identity(&|_| {});
    let moved = identity(&|record| {
        record["config"]["run"] = json!({"out": "elsewhere", "threads": 9});
        record["machine"] = json!({"threads": 9});
    });
    assert_eq!(first, moved);
    assert_ne!(
        first,
        identity(&|record| record["config"]["optim"]["clip_norm"] = json!(2.0))
    );
    assert_ne!(
        first,
        identity(&|record| record["data"]["files"][0]["sha256"] = json!("cd"))
    );
}

#[test]
fn names_cannot_inject_markup_into_the_page() {
    let evil = "<script>alert('&\"</script>";
    let place = run(falling(10, 5).as_bytes(), |record| {
        record["model"]["path"] = json!(evil);
        record["data"]["files"][0]["path"] = json!(evil);
        record["plugins"][0]["component"] = json!(evil);
        record["config"]["optim"]["name"] = json!(evil);
        record["machine"] = json!({"description": evil});
    });
    fs::create_dir(place.path().join("adapter")).expect("created");
    let page = page(place.path());
    assert!(!page.contains("<script>alert") && !page.contains("alert('&\""));
    assert!(page.contains("&lt;script&gt;alert"), "it is shown, escaped");
}

#[test]
fn a_torn_or_foreign_line_is_skipped_and_counted() {
    let mut metrics = falling(20, 10).into_bytes();
    metrics.extend(b"{\"step\": 21, \"loss\": NaN, \"grad_norm\": 1}\n\xff\xfe\n{\"step\":22,\"lo");
    let place = run(&metrics, |_| {});
    let report = Report::of(place.path()).expect("a report");
    assert_eq!(report.reading.verdict, RunVerdict::Diverged);
    let text = report.reading.to_string();
    assert!(text.contains("loss of step 21 is not a number"), "{text}");
    assert!(
        text.contains("left out: 2") && text.contains("21 of 120 steps"),
        "{text}"
    );
    page(place.path());
}

#[test]
fn a_run_without_a_step_has_a_report() {
    let place = run(b"", |_| {});
    fs::remove_file(place.path().join("metrics.jsonl")).expect("removed");
    let page = page(place.path());
    assert!(page.contains("No step is done") && page.contains("--resume"));
}

#[test]
fn a_hundred_thousand_steps_stay_small() {
    let place = run(falling(100_000, 500).as_bytes(), |_| {});
    let begin = Instant::now();
    let page = page(place.path());
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
    let numbers = fs::metadata(place.path().join("report.json")).expect("numbers");
    assert!(numbers.len() < 2 << 20, "{} bytes", numbers.len());
    let secs = begin.elapsed().as_secs_f64();
    assert!(secs < 30.0, "{secs} s");
}

#[test]
fn a_folder_that_holds_no_run_is_refused() {
    let place = tempfile::tempdir().expect("a folder");
    let refused = |place: &Path| Report::of(place).expect_err("no run");
    assert_eq!(refused(place.path()).exit_code(), 2);
    fs::write(place.path().join("run.json"), "[1, 2").expect("written");
    let error = refused(place.path());
    assert!(
        error
            .to_string()
            .contains("run.json: is no record of a run"),
        "{error}"
    );
    assert!(error.next_step().contains("output directory"));
}
