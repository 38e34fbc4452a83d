//! A comparison that is repeated, or interrupted and resumed -> the same numbers, except those
//! documented as measurements.

mod comparing;
use espalier_torture::training;

use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use comparing::{ARMS, compare, same, succeed};
use serde_json::Value as Json;
use training::{Training, files, last_line, refused};

/// The measurements, by path in an arm of `report.json`: times, and the memory of the program
/// itself.
const MEASURED: [&str; 12] = [
    "/encode_secs",
    "/tokens_per_sec",
    "/secs_per_step",
    "/memory/observed_peak_bytes",
    "/memory/planned_peak_bytes",
    "/memory/planned/program",
    "/memory/world/process/program",
    "/memory/world/process/loading_peak",
    "/memory/world/process/available",
    "/memory/world/machine/program",
    "/memory/world/machine/loading_peak",
    "/memory/world/machine/available",
];

/// `report.json` of the comparison without the measurements.
fn numbers(training: &Training, out: &str) -> Json {
    let more = "--plugins lora --arms nf4,nf4:block_size=128 --seeds 2";
    let mut command = training.command_of("compare", out, more);
    let output = command.output().expect("the host starts");
    assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
    let text = fs::read(training.path(out).join("report.json")).expect("a report");
    let mut report: Json = serde_json::from_slice(&text).expect("JSON");
    let arms = report["arms"].as_array_mut().expect("arms");
    assert_eq!(arms.len(), 3);
    for place in MEASURED {
        for arm in arms.iter_mut() {
            let value = arm.pointer_mut(place);
            *value.unwrap_or_else(|| panic!("no {place}")) = Json::Null;
        }
    }
    report
}

#[test]
fn a_repeated_comparison_differs_only_in_its_measurements() {
    let training = Training::new("--set adapter.lora.dropout=0.1");
    let (first, again) = (numbers(&training, "first"), numbers(&training, "again"));
    assert!(first["arms"][1]["after"]["loss"].is_f64(), "{first}");
    assert_eq!(first, again);
}

#[test]
fn the_documentation_names_the_measurements() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/compare.md");
    let page = fs::read_to_string(page).expect("the page");
    for place in MEASURED {
        let name = place.rsplit('/').next().expect("a name");
        assert!(page.contains(&format!("`{name}`")), "no `{name}`");
    }
}

/// Starts a comparison and stops it by `signal` once `file` exists.
fn stop(training: &Training, out: &str, more: &str, signal: &str, file: &str) -> Output {
    let mut command = training.command_of("compare", out, more);
    let child = command
        .stderr(Stdio::piped())
        .spawn()
        .expect("the host starts");
    let wanted = training.path(out).join(file);
    for _ in 0..60_000 {
        if wanted.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let kill = format!("kill -{signal} {}", child.id());
    let killed = Command::new("sh")
        .args(["-c", &kill])
        .status()
        .expect("a shell");
    assert!(
        killed.success(),
        "the comparison had ended before {file} was seen"
    );
    child.wait_with_output().expect("a child")
}

#[test]
fn an_interrupted_comparison_resumes_to_the_same_bits() {
    let training =
        comparing::training("--set run.epochs=40 --set run.eval_every=50 --set run.save_every=20");
    succeed(&training, "whole", ARMS);
    for (schedule, file) in [
        ("interleaved", "arms/nf4/seed-43/checkpoints/step-40"),
        ("sequential", "arms/dense/seed-43/checkpoints/step-20"),
    ] {
        let more = format!("{ARMS} --schedule {schedule}");
        for signal in ["KILL", "INT"] {
            let out = format!("{schedule}-{signal}-{}", file.replace('/', "-"));
            let stopped = stop(&training, &out, &more, signal, file);
            if signal == "INT" {
                assert_eq!(stopped.status.code(), Some(130), "{}", last_line(&stopped));
                let line = last_line(&stopped);
                assert!(
                    line.contains("compare") && line.ends_with("--resume"),
                    "{line}"
                );
            }
            let other = format!("--arms nf4 --seeds 2 --schedule {schedule} --resume");
            let line = refused(
                &compare(&training, &out, &other),
                2,
                "arms.nf4-block_size=128",
                &other,
            );
            assert!(line.contains("-> unset"), "{line}");
            succeed(&training, &out, &format!("{more} --resume"));
            same(&training, &out, "whole");
        }
    }
    // A finished run is not changed; more seeds can follow.
    let before = files(&training.path("whole/arms/nf4/seed-42"));
    let record = succeed(
        &training,
        "whole",
        "--arms nf4,nf4:block_size=128 --seeds 3 --resume",
    );
    assert_eq!(record["seeds"], serde_json::json!([42, 43, 44]));
    assert_eq!(files(&training.path("whole/arms/nf4/seed-42")), before);
    assert!(training.path("whole/arms/nf4/seed-44/adapter").is_dir());
    let changed = format!("{ARMS} --seeds 3 --resume --set optim.learning_rate=1e-3");
    let words = "optim.learning_rate: 0.0002 -> 0.001";
    refused(
        &compare(&training, "whole", &changed),
        2,
        words,
        "learning rate",
    );
}
