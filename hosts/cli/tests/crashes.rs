//! A run that is killed, or whose disk fails, at any moment: no checkpoint is ever partial. A
//! resumed run ends like an uninterrupted one.
#![cfg(target_os = "linux")]

use espalier_torture::training;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use espalier_torture::built::faults;
use espalier_trainer::checkpoint::{Checkpoints, ResumeFrom};
use training::{Trained, Training, last_line, names, refused, trained};

/// A run of five steps that keeps two checkpoints, so that the third save follows the second and
/// removes the first.
struct Crashes {
    training: Training,
    library: PathBuf,
    whole: Trained,
    /// Every call on a file of the output in order, as `NAME PATH`.
    calls: Vec<String>,
}

impl Crashes {
    fn new() -> Self {
        let more = "--plugins lora --set adapter.lora.dropout=0.1 --set run.keep_last=1 \
                    --set run.max_steps=5";
        let training = Training::new(more);
        let library = faults();
        let log = training.path("calls");
        let counted = Crashes {
            whole: training.succeed("whole", ""),
            calls: Vec::new(),
            training,
            library,
        };
        let mut command = counted.command("counted", "0", "eio");
        let output = command.env("FAULT_LOG", &log).output().expect("it starts");
        assert!(output.status.success(), "{}", last_line(&output));
        let text = fs::read_to_string(log).expect("the calls");
        let calls: Vec<String> = text.lines().map(str::to_owned).collect();
        Crashes { calls, ..counted }
    }

    fn command(&self, out: &str, call: &str, kind: &str) -> std::process::Command {
        let mut command = self.training.command(out, "");
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAULT_PREFIX", self.training.path(out))
            .env("FAULT_CALL", call)
            .env("FAULT_KIND", kind);
        command
    }

    /// Runs it with call number `call`, counted from 1, failing as `kind`.
    fn failing(&self, out: &str, call: usize, kind: &str) -> Output {
        let mut command = self.command(out, &call.to_string(), kind);
        command.output().expect("it starts")
    }

    /// Runs it for this time, then kills it.
    fn killed_after(&self, out: &str, more: &str, pause: Duration) {
        let mut command = self.training.command(out, more);
        let run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut run = run.expect("it starts");
        std::thread::sleep(pause);
        run.kill().expect("it was started here");
        run.wait().expect("it was started here");
    }

    /// The numbers of the calls of the second save, including the removal of the first checkpoint.
    fn second_save(&self) -> std::ops::RangeInclusive<usize> {
        let of = |name: &str| {
            let has = |call: &String| call.contains(name);
            let first = self.calls.iter().position(has).expect("a call");
            let last = self.calls.iter().rposition(has).expect("a call");
            (first + 1, last + 1)
        };
        // The metrics are synced before; the old checkpoint is removed after.
        let (begin, _) = of("step-4.partial");
        let (_, end) = of("step-2.partial");
        begin - 1..=end
    }

    /// Expects every checkpoint whole, and at least `least` of them.
    fn all_whole(&self, out: &str, least: usize, case: &str) {
        let checkpoints = Checkpoints::of(&self.training.path(out));
        let steps = checkpoints.steps().expect("a list");
        assert!(steps.len() >= least, "{case}: {steps:?}");
        for step in steps {
            let found = checkpoints.choose(ResumeFrom::Step(step));
            found.unwrap_or_else(|error| panic!("{case}: {error}"));
        }
    }

    /// Resumes, and expects the same files as an uninterrupted run and no others.
    fn resumes(&self, out: &str, case: &str) {
        let output = self.training.run(out, "--resume");
        assert!(output.status.success(), "{case}: {}", last_line(&output));
        let path = self.training.path(out);
        assert!(trained(&path) == self.whole, "{case}: other bits");
        assert_eq!(names(&path), names(&self.training.path("whole")), "{case}");
        assert_eq!(names(&path.join("checkpoints")), ["step-5"], "{case}");
        fs::remove_dir_all(path).expect("removed");
    }
}

/// Runs `work` for all of `cases`, two at a time.
fn side_by_side<T: Sync>(cases: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(case);
                }
            });
        }
    });
}

#[test]
fn a_run_killed_at_thirty_moments_resumes_to_the_same_bits() {
    let crashes = Crashes::new();
    let window = crashes.second_save();
    let (begin, length) = (*window.start(), window.count());
    let inside = (0..10).map(|n| begin + n * (length - 1) / 9);
    let anywhere = (0..10).map(|n| 1 + n * (crashes.calls.len() - 1) / 9);
    let cases: Vec<usize> = inside.chain(anywhere).collect();
    side_by_side(&cases, |&call| {
        let (out, case) = (format!("killed-{call}"), &crashes.calls[call - 1]);
        let output = crashes.failing(&out, call, "kill");
        assert_eq!(
            output.status.signal(),
            Some(9),
            "{case}: {}",
            last_line(&output)
        );
        crashes.all_whole(&out, usize::from(call > begin), case);
        crashes.resumes(&out, case);
    });
    // By time too, in any phase of the program; and one run repeatedly.
    let begin = Instant::now();
    crashes.training.succeed("timed", "");
    let whole_secs = begin.elapsed().as_secs_f64();
    for moment in 0..10 {
        let case = format!("after {moment} tenths of a run");
        let pause = Duration::from_secs_f64(whole_secs * f64::from(moment) / 10.0);
        crashes.killed_after("timed-out", "", pause);
        crashes.all_whole("timed-out", 0, &case);
        crashes.resumes("timed-out", &case);
        crashes.killed_after("again", "--resume", pause);
        crashes.all_whole("again", 0, &case);
    }
    crashes.resumes("again", "again and again");
}

#[test]
fn every_call_of_a_save_can_fail_once() {
    let crashes = Crashes::new();
    let mut cases = Vec::new();
    for call in crashes.second_save() {
        let name = crashes.calls[call - 1]
            .split(' ')
            .next()
            .unwrap_or_default();
        cases.push((call, "eio"));
        match name {
            "write" => cases.extend([(call, "enospc"), (call, "short"), (call, "full")]),
            "mkdir" | "rename" => cases.push((call, "enospc")),
            _ => {}
        }
    }
    let failed = AtomicUsize::new(0);
    side_by_side(&cases, |&(call, kind)| {
        let out = format!("{kind}-{call}");
        let case = format!("{kind} at {}", crashes.calls[call - 1]);
        let output = crashes.failing(&out, call, kind);
        crashes.all_whole(&out, 1, &case);
        if output.status.success() {
            // A short write is continued, and a failure after the commit loses nothing.
            assert!(
                trained(&crashes.training.path(&out)) == crashes.whole,
                "{case}"
            );
            return;
        }
        failed.fetch_add(1, Ordering::Relaxed);
        let words = if kind == "eio" {
            "cannot | --resume"
        } else {
            "no room for | --resume"
        };
        let line = refused(&output, 8, words, &case);
        assert!(
            line.contains("checkpoints") || line.contains("metrics.jsonl"),
            "{case}: {line}"
        );
        crashes.resumes(&out, &case);
    });
    let failed = failed.into_inner();
    assert!(
        failed > 100,
        "{failed} of {} failures ended the run",
        cases.len()
    );
}

#[test]
fn a_file_system_that_becomes_read_only_ends_the_run_like_a_full_disk() {
    let crashes = Crashes::new();
    let of = |name: &str| {
        let has = |call: &String| call.contains(name);
        crashes.calls.iter().position(has).expect("a call") + 1
    };
    // In a step, in a save and at the end.
    for call in [
        of("step-2.partial") - 1,
        of("step-4.partial") + 5,
        of("adapter.partial") + 3,
    ] {
        let (out, case) = (format!("erofs-{call}"), &crashes.calls[call - 1]);
        let output = crashes.failing(&out, call, "readonly");
        refused(&output, 8, "has become read-only | --resume", case);
        crashes.all_whole(&out, 0, case);
        // The lock could not be removed, but no process holds it.
        crashes.resumes(&out, case);
    }
    // On a file system that is read-only from the start, the user is asked for another directory.
    let output = crashes.failing("never", 1, "readonly");
    let line = refused(&output, 2, "never | choose another", "from the beginning");
    assert!(!line.contains("--resume"), "{line}");
}

/// A shell's limit on the file size simulates a full disk without root.
#[test]
fn a_file_size_limit_keeps_the_old_checkpoint() {
    let training = Training::new("--plugins lora");
    let whole = training.succeed("whole", "");
    let largest = training.path("whole/checkpoints/step-2/optimizer.safetensors");
    let blocks = fs::metadata(largest).expect("a file").len() / 1024 - 1;
    let output = {
        let run = training.command("out", "");
        let mut shell = std::process::Command::new("bash");
        shell.current_dir(training.folder.path());
        shell.args(["-c", &format!("ulimit -f {blocks}; exec \"$@\""), "bash"]);
        shell.arg(run.get_program()).args(run.get_args());
        shell.output().expect("a shell")
    };
    refused(
        &output,
        8,
        "no room for | optimizer.safetensors | --resume",
        "ulimit",
    );
    assert_eq!(names(&training.path("out/checkpoints")), [""; 0]);
    assert_eq!(training.succeed("out", "--resume"), whole);
}
