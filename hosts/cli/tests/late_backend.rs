//! The program on the backend `late`, whose streams are queues and whose memory the host cannot
//! touch: it passes the checks of a backend, generates the text of `cpu` and leaves nothing behind.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use espalier_torture::training::{Training, refused};
use serde_json::Value as Json;

/// The orders of the tasks on the command line.
const ORDERS: [&str; 5] = [
    "--set backend.late.order=late",
    "--set backend.late.order=early",
    "--set backend.late.order=mixed --set backend.late.seed=1",
    "--set backend.late.order=mixed --set backend.late.seed=2",
    "--set backend.late.order=mixed --set backend.late.seed=3",
];

/// Runs in a folder with the backend in `plugins`.
fn training() -> Training {
    training_of("nf4,lora", &["late"])
}

/// Runs with these plugins, in a folder with the libraries of `packages` in `plugins`.
fn training_of(plugins: &str, packages: &[&str]) -> Training {
    let training = Training::new(&format!("--plugin-dir plugins --plugins {plugins}"));
    let folder = training.path("plugins");
    fs::create_dir(&folder).expect("a folder");
    for package in packages {
        let library = espalier_samples::library(package);
        let name = library.file_name().expect("a library is a file");
        fs::copy(&library, folder.join(name)).expect("a copy");
    }
    training
}

fn host(training: &Training, words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_host"));
    command.current_dir(training.folder.path());
    command.env("XDG_DATA_HOME", training.path("data"));
    command.args(words.split_whitespace());
    command.output().expect("the program starts")
}

/// Standard output of a call that succeeds.
fn printed(training: &Training, words: &str) -> String {
    let output = host(training, words);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {error}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn its_unit_tests_pass() {
    espalier_samples::run_unit_tests("late");
}

#[test]
fn it_passes_every_check_of_a_backend() {
    let training = training();
    let checks = printed(&training, "plugins check plugins/liblate.so");
    let last = checks.lines().rfind(|line| line.contains("passed"));
    let passed = last.and_then(|line| line.trim().strip_suffix(" passed, 0 failed, 0 skipped"));
    // Each op that is added is one check more.
    let passed = passed.and_then(|count| count.parse::<usize>().ok());
    assert!(passed.is_some_and(|count| count >= 65), "{checks}");
}

#[test]
fn it_generates_the_text_of_cpu_in_every_order() {
    let training = training();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/quickstart/model");
    let words = format!(
        "generate --quiet --plugin-dir plugins --model {} --prompt Blessed --max-tokens 24",
        model.display()
    );
    let expected = printed(&training, &words);
    assert!(expected.split_whitespace().count() > 5, "{expected}");
    for order in ORDERS {
        let found = printed(&training, &format!("{words} --backend late {order}"));
        assert_eq!(found, expected, "{order}");
    }
}

/// Lines of the backend's counts of a run of `steps` steps.
fn counts(training: &Training, steps: u64) -> Vec<Json> {
    let out = format!("steps-{steps}");
    let path = training.path(&format!("{out}.counts"));
    let words = format!(
        "--backend late --set run.epochs=1000 --set run.max_steps={steps} \
         --set run.eval_every=1000 --set run.save_every=1000 \
         --set backend.late.leak_report={} --set backend.late.report_every=50",
        path.display()
    );
    training.succeed(&out, &words);
    let text = fs::read_to_string(path).expect("counts");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[test]
fn a_longer_run_keeps_no_more_events_kernels_and_buffers() {
    let training = training();
    let last = |steps| {
        let lines = counts(&training, steps);
        let during = lines.iter().rfind(|line| line["at"] == "host wait");
        let during = during.expect("a line during the run").clone();
        let end = lines.last().expect("a line at the end").clone();
        assert_eq!(end["at"], "end");
        assert_eq!((&end["buffers"], &end["tasks"]), (&0.into(), &0.into()));
        assert_eq!(end["freed_in_use"], 0);
        let waits = during["host_waits"].as_u64().expect("a count");
        let live = ["events", "kernels", "buffers"].map(|name| during[name].clone());
        (waits, live)
    };
    let steps = [10, 300];
    let [(few, short), (many, long)] = steps.map(last);
    let more = steps[1] - steps[0];
    assert!(many >= few + more, "{few} and {many} waits of the host");
    assert_eq!(short, long);
}

/// A device that never finishes is found, though every call to it returns: alone, where another
/// rank waits for it, and where the other rank's device does.
#[test]
fn a_device_that_never_finishes_ends_the_run_with_the_plugin_as_its_cause() {
    let ranks = "--ranks 2 --set backend.late.slow_device=2";
    let joined = format!("{ranks} --set run.device_collective=late-collective");
    for (plugins, more) in [
        ("nf4,lora", ""),
        ("nf4,lora,ddp", ranks),
        ("nf4,lora,fsdp", &joined),
    ] {
        let training = training_of(plugins, &["late", "late-collective"]);
        let words = format!(
            "--backend late --set backend.late.order=early --set backend.late.slow_launch=40 \
             --set backend.late.launch_secs=3600 --set run.plugin_timeout_secs=3 \
             --set run.peer_timeout_secs=60 {more}"
        );
        let begun = Instant::now();
        let output = training.command("out", &words).output();
        let output = output.expect("the host starts");
        let expected = "plugin `late` ( | does not return: no sign of progress for | \
                        raise run.plugin_timeout_secs";
        refused(&output, 5, expected, plugins);
        assert!(begun.elapsed().as_secs() < 60, "{plugins}");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(
            printed.contains("note: waiting for plugin `late` ("),
            "{printed}"
        );
    }
}
