//! Plugin calls that do not return -> messages meanwhile, effect of signals, and the run's end at
//! the limit.
#![cfg(feature = "embedded")]

use espalier_torture::built;
use espalier_torture::training;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use espalier_samples::{faulty, put};
use espalier_trainer::checkpoint::{Checkpoints, ResumeFrom};
use training::{Training, last_line, refused};

/// Longest wait on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

const QUANTIZER: &str = "--plugins faulty-quantizer,lora";
const BACKEND: &str = "--plugins faulty-backend,lora";

/// A run of six steps with a checkpoint every two, and a library whose calls can hang.
struct Hanging {
    training: Training,
}

impl Hanging {
    fn new() -> Self {
        let training = Training::new("--plugin-dir plugins");
        fs::create_dir(training.path("plugins")).expect("a folder");
        let library = fs::read(espalier_samples::library("faulty-run")).expect("just built");
        put(&training.path("plugins/libfaulty_run.so"), &library);
        Hanging { training }
    }

    /// The program with `fault`, CALLBACK:KIND.
    fn command(&self, out: &str, more: &str, fault: &str) -> Command {
        let mut command = self.training.command(out, more);
        command.env("FAULTY_RUN", fault);
        command.env("FAULTY_RUN_CPU", built::library("backend_cpu"));
        command.env("FAULTY_RUN_SIGN", self.training.path("sign"));
        command
    }

    fn run(&self, out: &str, more: &str, fault: &str) -> Output {
        let mut command = self.command(out, more, fault);
        command.output().expect("the host starts")
    }

    /// Starts a run and waits until its call hangs.
    fn hung(&self, mut command: Command) -> Child {
        let sign = self.training.path("sign");
        let _ = fs::remove_file(&sign);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the host starts");
        let started = Instant::now();
        while !sign.exists() {
            let ended = child.try_wait().expect("it was started here");
            assert!(ended.is_none(), "it ended by itself: {ended:?}");
            assert!(
                started.elapsed() < PATIENCE,
                "nothing hangs in {PATIENCE:?}"
            );
            sleep(Duration::from_millis(5));
        }
        child
    }
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_hanging_call_ends_the_run_at_the_limit_with_plugin_call_and_weight() {
    let hanging = Hanging::new();
    // The library was probed before; the hang comes later.
    assert!(
        hanging
            .run("sound", QUANTIZER, "none:none")
            .status
            .success()
    );
    let library = fs::canonicalize(hanging.training.path("plugins/libfaulty_run.so"));
    let library = library.expect("it was put there");
    let cases = [
        (QUANTIZER, "encode", " of `model.layers.0."),
        (QUANTIZER, "decode", " of `model.layers.0."),
        (QUANTIZER, "format", " of `model.layers.0."),
        (QUANTIZER, "create", ""),
        (BACKEND, "launch", ""),
        (BACKEND, "open", ""),
        ("--plugins faulty-adapter", "adapt", ""),
    ];
    for (plugins, callback, weight) in cases {
        let key = match callback {
            "create" => "run.probe_timeout_secs",
            _ => "run.plugin_timeout_secs",
        };
        let more = format!("{plugins} --set {key}=2");
        let output = hanging.run(callback, &more, &format!("{callback}:hang"));
        let called = plugins.split([' ', ',']).nth(1).expect("a name");
        let call = format!(
            "plugin `{called}` ({}) in {callback}{weight}",
            library.display()
        );
        let words =
            format!("{call} | does not return: no sign of progress for | raise {key} | --resume");
        refused(&output, 5, &words, callback);
        let all = printed(&output);
        let reported = format!("note: waiting for {call}");
        assert!(all.contains(&reported), "{callback}: {all}");
        assert!(
            all.contains("the program ends after 2 s"),
            "{callback}: {all}"
        );
    }
}

#[test]
fn a_library_that_hangs_only_in_the_run_ends_at_the_probes_limit() {
    let training = Training::new("--plugins faulty,lora --plugin-dir plugins");
    fs::create_dir(training.path("plugins")).expect("a folder");
    put(&training.path("plugins/libcase.so"), &faulty("open:loop"));
    let run = |call: &str, out: &str| {
        let mut command = training.command(out, "--set run.probe_timeout_secs=3");
        command.env("FAULT_CALL", call);
        command.output().expect("the host starts")
    };
    let sound = run("0", "sound");
    assert!(sound.status.success(), "{}", last_line(&sound));
    // It is recorded as opening successfully, and is not probed again.
    let words = "plugin `faulty` | /libcase.so) in opening | run.probe_timeout_secs";
    refused(&run("1", "hangs"), 5, words, "opening");
}

#[test]
fn a_hang_during_training_keeps_the_checkpoint_and_the_run_resumes_to_the_same_bits() {
    let hanging = Hanging::new();
    let whole = hanging.run("whole", QUANTIZER, "none:none");
    assert!(whole.status.success(), "{}", last_line(&whole));
    let more = format!("{QUANTIZER} --set run.plugin_timeout_secs=2");
    let mut command = hanging.command("out", &more, "decode:hang");
    let first = hanging.training.path("out/checkpoints/step-2");
    command.env("FAULTY_RUN_AFTER", &first);
    let words = "plugin `faulty-quantizer` | in decode of `model.layers. | --resume";
    refused(
        &command.output().expect("the host starts"),
        5,
        words,
        "decode",
    );
    let checkpoints = Checkpoints::of(&hanging.training.path("out"));
    let chosen = checkpoints.choose(ResumeFrom::Newest).expect("it is whole");
    assert_eq!(chosen.expect("one was saved").path, first);
    // The limit changes no result, so another limit is the same run.
    let resumed = hanging.run("out", &format!("{QUANTIZER} --resume"), "none:none");
    assert!(resumed.status.success(), "{}", last_line(&resumed));
    let trained = |out: &str| training::trained(&hanging.training.path(out));
    assert!(trained("out") == trained("whole"), "other bits");
}

#[test]
fn the_first_signal_prints_the_pending_call_and_the_second_ends_the_program() {
    let hanging = Hanging::new();
    let whole = hanging.run("sound", QUANTIZER, "none:none");
    assert!(whole.status.success(), "{}", last_line(&whole));
    for (signal, code, callback) in [("TERM", 143, "encode"), ("INT", 130, "decode")] {
        let out = format!("out-{signal}");
        let mut command = hanging.command(&out, QUANTIZER, &format!("{callback}:hang"));
        if callback == "decode" {
            let first = hanging.training.path(&out).join("checkpoints/step-2");
            command.env("FAULTY_RUN_AFTER", first);
        }
        let mut child = hanging.hung(command);
        let pid = child.id().to_string();
        let send = || {
            let sent = Command::new("kill")
                .args([&format!("-{signal}"), &pid])
                .status();
            assert!(sent.expect("a shell's kill").success());
        };
        send();
        let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let words = format!(
            "note: SIG{signal} asks to stop, and this waits for plugin `faulty-quantizer` ("
        );
        let reported = lines
            .map(|line| line.expect("a text"))
            .find(|line| line.starts_with(&words));
        let reported = reported.expect("it says what it waits for");
        let rest = [
            format!(") in {callback} of `model.layers.0."),
            "a second signal ends the program at once".to_owned(),
        ];
        for word in rest {
            assert!(reported.contains(&word), "no {word:?} in {reported}");
        }
        assert!(child.try_wait().expect("it was started here").is_none());
        send();
        let ended = child.wait().expect("it was started here");
        assert_eq!(ended.code(), Some(code), "{signal}");
        let resumed = hanging.run(&out, &format!("{QUANTIZER} --resume"), "none:none");
        assert!(resumed.status.success(), "{}", last_line(&resumed));
        let trained = |out: &str| training::trained(&hanging.training.path(out));
        assert!(trained(&out) == trained("sound"), "{signal}: other bits");
    }
}

#[test]
fn a_long_call_that_makes_progress_is_not_ended() {
    let hanging = Hanging::new();
    // The first weight takes six seconds, in pieces of a tenth.
    let more = format!("{QUANTIZER} --set run.plugin_timeout_secs=3 --set run.max_steps=0");
    let output = hanging.run("out", &more, "encode:long");
    assert!(output.status.success(), "{}", printed(&output));
}
