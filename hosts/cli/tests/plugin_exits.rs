//! Plugins that end the program, or crash on opening, in a run that trusted their record -> exit
//! code 5, and a last line with plugin and call. No finished work is lost.

use espalier_torture::training;

use std::fs;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use espalier_samples::{faulty, put};
use training::{Training, last_line, names, refused};

/// Longest wait for anything on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A run whose plugin folder holds the library with `fault`. The library was probed without the
/// fault and is recorded as sound.
fn trusted(fault: &str, plugins: &str) -> Training {
    let training = Training::new(&format!("--plugins {plugins} --plugin-dir plugins"));
    fs::create_dir(training.path("plugins")).expect("a folder");
    put(&training.path("plugins/libcase.so"), &faulty(fault));
    let mut listed = Command::new(env!("CARGO_BIN_EXE_host"));
    listed.args("plugins list --plugin-dir plugins".split(' '));
    listed.current_dir(training.folder.path());
    listed.env("XDG_DATA_HOME", training.path("data"));
    let listed = listed.env("FAULT_CALL", "0").output().expect("it starts");
    assert!(listed.status.success(), "{}", last_line(&listed));
    training
}

/// Runs it with the fault in that call; 0: without.
fn run(training: &Training, out: &str, call: u64, more: &str) -> Output {
    let mut command = training.command(out, more);
    command.env("FAULT_CALL", call.to_string());
    command.output().expect("the host starts")
}

#[test]
fn an_exit_within_a_call_is_reported_as_the_plugins_fault() {
    let quantizer = "faulty,lora";
    for (fault, plugins, call, more) in [
        ("open:exit", quantizer, 1, ""),
        ("root:exit", quantizer, 1, ""),
        ("create:exit", quantizer, 1, ""),
        ("encode:exit", quantizer, 3, ""),
        // On threads of the host that work for the call.
        ("decode:exit", quantizer, 40, "--set run.threads=3"),
        ("adapt:exit", "faulty-adapter", 1, ""),
        ("launch:exit", "faulty-backend,lora", 9, ""),
    ] {
        let training = trusted(fault, plugins);
        let output = run(&training, "out", call, more);
        let (place, _) = fault.split_once(':').expect("a place");
        let (name, callback) = match place {
            "open" | "root" => ("faulty", "opening"),
            other => (plugins.split(',').next().expect("a name"), other),
        };
        let words = format!(
            "plugin `{name}` (/ | /libcase.so) in {callback} ended the program with exit | --resume"
        );
        refused(&output, 5, &words, fault);
        for made in ["out/adapter", "out/model"] {
            assert!(!training.path(made).exists(), "{fault}: {made}");
        }
    }
}

#[test]
fn an_exit_during_training_keeps_the_checkpoint_and_the_run_resumes_to_the_same_bits() {
    let training = trusted("decode:exit", "faulty,lora");
    let whole = run(&training, "whole", 0, "");
    assert!(whole.status.success(), "{}", last_line(&whole));
    // Calls grow with the steps: the first of these after a checkpoint.
    let later = (9..).map(|power| 1 << power).find(|&call| {
        let out = format!("out-{call}");
        let output = run(&training, &out, call, "");
        let words = "plugin `faulty` (/ | in decode ended the program with exit";
        refused(&output, 5, words, &out);
        !names(&training.path(&format!("{out}/checkpoints"))).is_empty()
    });
    let out = format!("out-{}", later.expect("a run has steps"));
    let resumed = run(&training, &out, 0, "--resume");
    assert!(resumed.status.success(), "{}", last_line(&resumed));
    let trained = |out: &str| training::trained(&training.path(out));
    assert!(trained(&out) == trained("whole"), "other bits");
}

#[test]
fn a_crash_while_opening_a_library_names_the_plugin_and_the_call() {
    for (fault, signal) in [
        ("open:segfault", "signal 11 (SIGSEGV)"),
        ("open:overflow", "signal 11 (SIGSEGV)"),
        ("open:abort", "signal 6 (SIGABRT)"),
        ("root:segfault", "signal 11 (SIGSEGV)"),
    ] {
        let training = trusted(fault, "faulty,lora");
        let output = run(&training, "out", 1, "");
        let words = format!("plugin `faulty` (/ | /libcase.so) crashed with {signal} in opening");
        refused(&output, 5, &words, fault);
    }
}

#[test]
fn an_exit_of_a_plugin_that_is_swapped_in_ends_the_run_with_its_name() {
    let training = Training::new(
        "--plugins nf4,lora --set run.epochs=20000 --set run.save_every=100 --set run.eval_every=700",
    );
    let library = training.path("plugins/libcase.so");
    fs::create_dir(training.path("plugins")).expect("a folder");
    put(&library, &faulty("encode:exit"));
    let mut command = training.command("out", "");
    // The first call is made by the probe, in a separate process.
    command.env("FAULT_CALL", "2");
    let job = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut job = job.expect("the host starts");
    let started = Instant::now();
    while names(&training.path("out/checkpoints")).is_empty() {
        let ended = job.try_wait().expect("it was started here");
        assert!(ended.is_none(), "it ended by itself: {ended:?}");
        assert!(started.elapsed() < PATIENCE, "no step in {PATIENCE:?}");
        sleep(Duration::from_millis(5));
    }
    let folder = training.path("plugins");
    let mut swap = Command::new(env!("CARGO_BIN_EXE_host"));
    swap.current_dir(training.folder.path())
        .args(["swap", "--run", "out", "quantizer=faulty", "--plugin-dir"])
        .arg(folder);
    let asked = swap.output().expect("the host starts");
    refused(&asked, 2, "the run ended before it came to this", "swap");
    let ended = job.wait_with_output().expect("it was started here");
    let words = "plugin `faulty` (/ | /libcase.so) in encode ended the program with exit";
    refused(&ended, 5, words, "the run");
    assert!(!training.path("out/adapter").exists());
}
