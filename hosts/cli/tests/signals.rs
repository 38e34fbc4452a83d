//! A signal ends a run after the current step: a checkpoint is saved, the exit code reports it, and
//! the run can resume. SIGUSR1 saves one and ends nothing.
#![allow(unsafe_code)] // What a process does with a signal before it starts.

mod place;
use espalier_torture::training;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use espalier_samples::{mpi_folder, mpirun};
use place::{Outcome, RunFolder};
use training::{Training, names, refused, trained};

/// Longest wait for a run's first steps on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Steps of a run that is stopped after a few of them; all would take some seconds.
const STEPS: usize = 1800;

/// A run of `STEPS` steps that saves nothing unless signalled.
fn long(more: &str) -> Training {
    Training::new(&format!(
        "--set run.epochs={} --set run.save_every=100000 --set run.eval_every=750 {more}",
        STEPS / 3
    ))
}

fn steps(run: &Path) -> usize {
    let metrics = fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default();
    let lines = metrics.lines();
    lines.filter(|line| line.contains("grad_norm")).count()
}

/// The run, after two steps in `directory`.
fn under_way(mut command: Command, directory: &Path) -> Child {
    // Tests that run below `nohup` ignore hangups, and so would the run.
    // SAFETY: the call is allowed between fork and exec and touches no memory.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
            Ok(())
        });
    }
    let run = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut run = run.expect("the program was built");
    await_of(&mut run, "two steps", || steps(directory) >= 2);
    run
}

/// Waits until `has_come` is true of the run.
fn await_of(run: &mut Child, what: &str, has_come: impl Fn() -> bool) {
    let begin = Instant::now();
    while !has_come() {
        let ended = run.try_wait().expect("it was started here");
        assert!(ended.is_none(), "before {what} it ended: {ended:?}");
        assert!(begin.elapsed() < PATIENCE, "no {what} in {PATIENCE:?}");
        sleep(Duration::from_millis(5));
    }
}

fn send(signal: &str, run: &Child) {
    let sent = Command::new("kill")
        .args([format!("-{signal}"), run.id().to_string()])
        .status();
    assert!(sent.expect("a shell's kill").success());
}

fn ended(run: Child) -> Output {
    run.wait_with_output().expect("it was started here")
}

#[test]
fn a_signal_ends_the_run_after_its_step_and_the_run_resumes_to_the_same_bits() {
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let training = long("--plugins nf4,lora");
        let run = under_way(training.command("out", ""), &training.path("out"));
        // Meanwhile the directory is locked for every request.
        for more in ["", "--resume"] {
            training.refuse("out", more, 2, "is in use by process");
        }
        send(name, &run);
        let output = ended(run);
        let done = steps(&training.path("out"));
        assert!(done < STEPS, "{name}: it had done all");
        let saved = format!("out/checkpoints/step-{done}");
        let command = format!("`{} train --resume ", env!("CARGO_BIN_EXE_host"));
        let words = format!("after step {done} | continue with {command} | {saved}");
        let line = refused(&output, code, &words, name);
        let log = fs::read_to_string(training.path("out/log.txt")).expect("a log");
        assert!(
            log.lines().last().is_some_and(|last| last.ends_with(&line)),
            "{log}"
        );
        assert!(!training.path("out/adapter").exists(), "{name}");
        let resumed = training.succeed("out", "--resume");
        assert_eq!(resumed.metrics.len(), STEPS + 4, "{name}");
        assert!(
            resumed == training.succeed("whole", ""),
            "{name}: other bits"
        );
    }
}

#[test]
fn a_signal_ends_the_run_after_its_step_with_a_checkpoint_saved() {
    let place = RunFolder::new();
    place.model("model");
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let endless = "--set run.epochs=100000 --set run.max_steps=100000 --plugins nf4,lora";
        let mut command = place.command();
        command
            .args(RunFolder::words("model", endless))
            .args(["--out", signal]);
        let run = under_way(command, &place.path(signal));
        // Meanwhile the directory is locked.
        let second = place.train("model", &format!("--plugins lora --out {signal}"));
        second.refused("second", 2, "is in use by process");
        send(signal, &run);
        let outcome = Outcome::new(&ended(run));
        outcome.refused(signal, code, "after step | --resume");
        assert!(!place.path(signal).join("adapter").exists(), "{signal}");
        // Its adapter is whole: the next run starts from it.
        let saved = format!("{signal}/checkpoints");
        let saved = format!("{saved}/{}", place.names(&saved));
        let next = format!("--adapter {saved}/adapter --out next-{signal}");
        place.train("model", &next).succeeded();
    }
}

/// A shell sends the signal again when it ends, and so does the system.
#[test]
fn a_second_hangup_does_not_prevent_the_save() {
    let training = long("--plugins nf4,lora");
    let run = under_way(training.command("out", ""), &training.path("out"));
    for _ in 0..20 {
        send("HUP", &run);
    }
    let words = "signal 1 | train --resume | out/checkpoints/step-";
    refused(&ended(run), 129, words, "twice");
}

/// As started by `nohup`.
#[test]
fn a_hangup_that_is_ignored_from_the_start_stays_ignored() {
    let training = long("--plugins nf4,lora");
    let run = training.command("out", "");
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]);
    shell.arg(run.get_program()).args(run.get_args());
    shell.current_dir(training.folder.path());
    let run = under_way(shell, &training.path("out"));
    for _ in 0..3 {
        send("HUP", &run);
        sleep(Duration::from_millis(20));
    }
    let output = ended(run);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        training::messages(&output)
    );
    assert_eq!(steps(&training.path("out")), STEPS);
}

/// The checkpoints in `run`, by step.
fn saved(run: &Path) -> Vec<usize> {
    let names = names(&run.join("checkpoints"));
    let step = |name: &String| name.strip_prefix("step-")?.parse().ok();
    names.iter().filter_map(step).collect()
}

/// Makes `command` save under SIGUSR1 in each of `runs` before it ends, and end like an undisturbed
/// run.
fn saves_and_continues(training: &Training, command: Command, runs: &[PathBuf], more: &str) {
    let last = runs.last().expect("a run");
    let mut run = under_way(command, last);
    send("USR1", &run);
    for path in runs {
        await_of(&mut run, "a checkpoint", || !saved(path).is_empty());
    }
    let output = ended(run);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{more}: {}",
        training::messages(&output)
    );
    let log = fs::read_to_string(training.path("out/log.txt")).expect("a log");
    for path in runs {
        let step = saved(path).into_iter().find(|&step| step < STEPS);
        let step = step.unwrap_or_else(|| panic!("{more}: {:?}", saved(path)));
        let reported = format!(
            "note: SIGUSR1 asks for a checkpoint: saved after step {step}, and the run continues"
        );
        let reported = log.lines().filter(|line| line.ends_with(&reported)).count();
        assert!(reported >= 1, "{more}: {log}");
    }
}

#[test]
fn sigusr1_saves_a_checkpoint_and_the_run_continues() {
    for more in ["--plugins nf4,lora", "--plugins nf4,lora,ddp --ranks 2"] {
        let training = long(more);
        let out = training.path("out");
        saves_and_continues(&training, training.command("out", ""), &[out], more);
        let whole = training.succeed("whole", "");
        assert!(
            trained(&training.path("out")) == whole,
            "{more}: other bits"
        );
        // The saved checkpoint resumes to the same bits, too.
        let [step, ..] = saved(&training.path("out"))[..] else {
            panic!("it was there");
        };
        training.unfinished("out", "again");
        let again = training.succeed("again", &format!("--resume=step-{step}"));
        assert!(again == whole, "{more}: other bits from step {step}");
    }
}

#[test]
fn sigusr1_saves_every_run_of_a_comparison_that_is_under_way() {
    let training = long("--plugins lora --arms nf4 --seeds 1 --schedule interleaved");
    let runs = ["dense", "nf4"].map(|arm| training.path(&format!("out/arms/{arm}/seed-42")));
    let command = training.command_of("compare", "out", "");
    saves_and_continues(&training, command, &runs, "compare");
}

#[test]
fn sigusr1_forwarded_by_mpirun_saves_the_state_of_all_processes() {
    let folder = mpi_folder();
    let more = format!(
        "--plugins nf4,lora,fsdp,mpi --plugin-dir {}",
        folder.display()
    );
    let training = long(&more);
    let command = mpirun(2, &training.command("out", ""));
    saves_and_continues(&training, command, &[training.path("out")], "mpi");
    let [step, ..] = saved(&training.path("out"))[..] else {
        panic!("it was there");
    };
    let whole = trained(&training.path("out"));
    training.unfinished("out", "again");
    let mut again = mpirun(
        2,
        &training.command("again", &format!("--resume=step-{step}")),
    );
    let output = again.output().expect("mpirun starts");
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        training::messages(&output)
    );
    assert!(
        trained(&training.path("again")) == whole,
        "other bits from step {step}"
    );
}
