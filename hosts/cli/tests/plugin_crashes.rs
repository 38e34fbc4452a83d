//! Plugins that take the process down in the middle of a run -> the last line, and what a resumed run makes of it.

mod training;

use std::fs;
use std::process::Output;

use espalier_samples::{faulty, put};
use training::{Training, last_line};

/// A run of a few steps with a library that crashes in the middle of it.
struct Crash {
    training: Training,
}

impl Crash {
    fn new(fault: &str, plugins: &str) -> Self {
        let training = Training::new(&format!("--plugins {plugins} --plugin-dir plugins"));
        fs::create_dir(training.path("plugins")).expect("a folder");
        let path = training.path("plugins/libcase.so");
        put(&path, &faulty(fault));
        Crash { training }
    }

    /// Runs it with the fault in that call, on two threads where `threads` says so.
    fn run(&self, out: &str, call: u64, more: &str) -> Output {
        let mut command = self.training.command(out, more);
        command.env("FAULT_CALL", call.to_string());
        command.output().expect("the host starts")
    }
}

/// Wants a last line that blames `plugin` in `callback`.
fn blamed(output: &Output, plugin: &str, signal: &str, callback: &str) {
    let line = last_line(output);
    assert_eq!(output.status.code(), Some(5), "{line}");
    assert!(
        line.starts_with(&format!("error: plugin `{plugin}` (/")),
        "{line}"
    );
    let words = format!("/plugins/libcase.so) crashed with {signal} in {callback}; next: ");
    assert!(line.contains(&words) && line.contains("--resume"), "{line}");
}

#[test]
fn a_crash_inside_a_run_names_plugin_and_callback() {
    let cases = [
        (
            "encode:segfault",
            "faulty,lora",
            "signal 11 (SIGSEGV)",
            "encode",
        ),
        (
            "encode:abort",
            "faulty,lora",
            "signal 6 (SIGABRT)",
            "encode",
        ),
        (
            "encode:overflow",
            "faulty,lora",
            "signal 11 (SIGSEGV)",
            "encode",
        ),
        (
            "adapt:segfault",
            "faulty-adapter",
            "signal 11 (SIGSEGV)",
            "adapt",
        ),
        (
            "launch:abort",
            "faulty-backend,lora",
            "signal 6 (SIGABRT)",
            "launch",
        ),
    ];
    for (fault, plugins, signal, callback) in cases {
        let crash = Crash::new(fault, plugins);
        let name = plugins.split(',').next().expect("a name");
        blamed(&crash.run("out", 1, ""), name, signal, callback);
    }
}

#[test]
fn a_run_goes_on_from_its_checkpoint_after_a_crash_on_a_worker_thread() {
    for (fault, signal) in [
        ("decode:segfault", "signal 11 (SIGSEGV)"),
        ("decode:overflow", "signal 11 (SIGSEGV)"),
    ] {
        let crash = Crash::new(fault, "faulty,lora");
        let threads = "--set run.threads=3";
        let whole = crash.run("whole", 0, threads);
        assert_eq!(whole.status.code(), Some(0), "{}", last_line(&whole));
        // A call of the fifth of six steps, well behind the checkpoint after four.
        let call = calls_until_step(&crash, 5);
        blamed(&crash.run("out", call, threads), "faulty", signal, "decode");
        let left = training::names(&crash.training.path("out/checkpoints"));
        assert_eq!(left, ["step-2", "step-4"]);
        let resumed = crash.run("out", 0, &format!("{threads} --resume"));
        assert_eq!(resumed.status.code(), Some(0), "{}", last_line(&resumed));
        let trained = |out: &str| training::trained(&crash.training.path(out));
        assert!(trained("out") == trained("whole"), "{fault}: other bits");
    }
}

/// The number of a call of `decode` that lies in step number `step`: found by halving, from how far the run comes.
fn calls_until_step(crash: &Crash, step: usize) -> u64 {
    let (mut low, mut high) = (0u64, 1 << 14);
    while low + 1 < high {
        let middle = low.midpoint(high);
        let out = format!("search-{middle}");
        let output = crash.run(&out, middle, "--set run.threads=3");
        let metrics = fs::read_to_string(crash.training.path(&out).join("metrics.jsonl"));
        let done = metrics
            .unwrap_or_default()
            .lines()
            .filter(|line| line.contains("\"loss\""))
            .count();
        match output.status.code() {
            Some(5) if done + 1 == step => return middle,
            Some(5) if done + 1 < step => low = middle,
            _ => high = middle,
        }
    }
    panic!("no call lies in step {step}");
}
