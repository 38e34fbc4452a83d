//! Resuming and evaluating on the backend `cuda` over the mock libraries: the same bits in every
//! order of the streams, and the numbers of backend `cpu`.

use std::fs;
use std::path::Path;
use std::process::Command;

use espalier_tests_gpu::{ALL_TRAININGS, CASES, Case, ORDERS};
use espalier_torture::built::{golden, program};
use espalier_torture::training::last_line;
use serde_json::Value as Json;

/// Where the mock libraries and the kernels are kept.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// Without [`ALL_TRAININGS`] the first case in one order, which takes seconds.
fn chosen() -> (Vec<Case>, &'static [&'static str]) {
    let cases = CASES.into_iter().filter(|case| case.compute == "f32");
    match std::env::var_os(ALL_TRAININGS) {
        Some(_) => (cases.collect(), &ORDERS[..]),
        None => (cases.take(1).collect(), &ORDERS[..1]),
    }
}

#[test]
fn a_resumed_run_has_the_bits_of_a_whole_one_in_every_order() {
    let (cases, orders) = chosen();
    for case in &cases {
        let training = case.training("--set run.max_steps=3");
        for order in orders {
            let whole = case.on_cuda(&training, folder(), order);
            assert_counts_device_bytes(&training.path(order));
            let out = format!("{order}-resumed");
            training.unfinished(order, &out);
            let resumed = case.succeed(&training, folder(), order, [&out, "--resume"]);
            assert_eq!(resumed, whole, "{}: {order}", case.name);
        }
    }
}

/// Panics unless every step of a run has the bytes that a rank held on its device.
fn assert_counts_device_bytes(out: &Path) {
    let metrics = fs::read_to_string(out.join("metrics.jsonl")).expect("metrics");
    let lines = metrics.lines().map(serde_json::from_str::<Json>);
    let lines: Vec<Json> = lines.collect::<Result<_, _>>().expect("lines of JSON");
    let steps = lines.iter().filter(|line| line["step_secs"].is_number());
    let held: Vec<_> = steps
        .map(|step| step["peak_device_bytes"].as_u64())
        .collect();
    assert!(!held.is_empty(), "{metrics}");
    assert!(held.iter().all(|bytes| *bytes > Some(0)), "{held:?}");
}

/// An evaluation of rows with answers, before its backend is chosen.
fn evaluation(case: &Case, rows: &Path) -> Command {
    let mut host = Command::new(program());
    host.args(["eval", "--quiet", "--json", "--answers", "2", "--model"]);
    host.arg(golden("llama/tiny")).arg("--data").arg(rows);
    host.args(["--set", "model.compute=f32", "--ranks"]);
    host.arg(case.ranks.to_string());
    let words = case.words.split_whitespace();
    host.args(words.map(|word| word.replace(",lora", "")));
    host
}

/// What an evaluation finds, without its times.
fn found(host: &mut Command) -> Json {
    let output = host.output().expect("the host starts");
    assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
    let mut found: Json = serde_json::from_slice(&output.stdout).expect("JSON");
    let numbers = found.as_object_mut().expect("an object");
    for time in ["secs", "tokens_per_sec"] {
        assert!(numbers.remove(time).is_some(), "no {time}");
    }
    found
}

#[test]
fn an_evaluation_has_the_numbers_of_cpu_in_every_order() {
    let rows = tempfile::tempdir().expect("a folder");
    let rows = rows.path().join("rows.jsonl");
    let row =
        |end: u32| format!("{{\"input_ids\":[5,6,7,8,{end}],\"labels\":[-100,-100,7,8,{end}]}}\n");
    fs::write(&rows, [row(9), row(10), row(11)].concat()).expect("written");
    let loss = |of: &Json| of["loss"].as_f64().expect("a loss");
    let (cases, orders) = chosen();
    for case in &cases {
        let cpu = found(evaluation(case, &rows).args(["--backend", "cpu"]));
        let of = |order: &str| found(case.mocked(&mut evaluation(case, &rows), folder(), order));
        let first = of(orders[0]);
        let difference = (loss(&first) - loss(&cpu)).abs() / loss(&cpu);
        assert!(difference <= case.bound, "{}: {first}, {cpu}", case.name);
        assert_eq!(first["exact_match"], cpu["exact_match"], "{}", case.name);
        for order in &orders[1..] {
            assert_eq!(of(order), first, "{}: {order}", case.name);
        }
    }
}
