//! Ranks that are killed, stop, panic or hang: all others end in time with exit code 6. They name
//! the lost rank, its step and call. A resumed run equals an uninterrupted one. `cargo xtask kills`
//! runs it sixty times.
#![allow(clippy::print_stdout)] // Figures for the test log.
#![cfg(feature = "embedded")]

use espalier_torture::built;
use espalier_torture::training;
use espalier_torture::victims;

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use espalier_samples::mpi_folder;
use training::{Trained, Training, last_line, trained};
use victims::RankGroup;

/// Number of processes, and of threads of a process.
const RANKS: u32 = 3;
/// Time limit for all ranks to end.
const IN_TIME: Duration = Duration::from_secs(10);
/// Many short steps with occasional saves and evaluations.
const LONG: &str = "--set run.epochs=40 --set run.eval_every=60 --set adapter.lora.rank=4";
const PLUGINS: &str = "--plugins nf4,lora,fsdp";

/// Number of kills: few by default.
fn kills() -> u32 {
    let asked = std::env::var("ESPALIER_KILLS").ok();
    asked.map_or(3, |count| count.parse().expect("a number of kills"))
}

#[test]
fn survivors_of_a_killed_or_stopped_process_end_in_time_and_the_run_resumes() {
    let folder = mpi_folder();
    let training = Training::new(&format!(
        "{LONG} {PLUGINS},mpi --plugin-dir {}",
        folder.display()
    ));
    let whole = {
        let (_, trained) = to_the_end(&training, "whole", "");
        trained
    };
    for round in 0..kills() {
        let out = format!("killed-{round}");
        // Every rank gets both.
        let victim = (round + round / RANKS) % RANKS;
        let signal = ["-KILL", "-STOP", "-KILL"][round as usize % 3];
        let case = format!("round {round}: {signal} to rank {victim}");
        let mut group = RankGroup::of(RANKS, &training, &out, "");
        let step = 2 + 2 * (round * 7 % 5);
        group.await_file(&training.path(&out).join(format!("checkpoints/step-{step}")));
        thread::sleep(Duration::from_millis(u64::from(round * 37 % 100)));
        group.signal(victim, signal);
        let stopped = usize::from(signal == "-STOP");
        let took = group.await_end(stopped);
        let (output, codes) = group.end();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(took <= IN_TIME, "{case}: {took:?}: {printed}");
        for rank in (0..RANKS).filter(|&rank| rank != victim) {
            assert_eq!(
                codes[rank as usize],
                Some(6),
                "{case}: rank {rank} of {codes:?}: {printed}"
            );
        }
        let lost = format!("error: rank {victim} (process {victim} on ");
        let lines: Vec<&str> = printed
            .lines()
            .filter(|line| line.starts_with(&lost))
            .collect();
        assert!(lines.len() >= RANKS as usize - 1, "{case}: {printed}");
        for line in lines {
            let named =
                line.contains(", step ") && line.contains("call ") && line.contains("; next: ");
            assert!(named, "{case}: {line}");
        }
        let (printed, resumed) = to_the_end(&training, &out, "--resume");
        assert!(
            resumed == whole,
            "{case}: a resumed run gives other bits: {printed}"
        );
        println!("{case}: ended after {took:?}, resumed to the bit");
        std::fs::remove_dir_all(training.path(&out)).expect("it was written");
    }
}

#[test]
fn a_thread_that_panics_or_hangs_ends_its_process_in_time() {
    let training = Training::new(&format!(
        "{LONG} {PLUGINS},faulty-backend --ranks {RANKS} --plugin-dir plugins"
    ));
    std::fs::create_dir(training.path("plugins")).expect("a folder");
    let library = training.path("plugins").join("libfaulty_run.so");
    std::fs::copy(espalier_samples::library("faulty-run"), library).expect("a copy");
    let run = |out: &str, more: &str, fault: Option<&str>| {
        let mut command = training.command(out, more);
        command
            .env("FAULTY_RUN_CPU", built::library("backend_cpu"))
            .env("RUST_BACKTRACE", "0");
        if let Some(fault) = fault {
            command
                .env("FAULTY_RUN", fault)
                .env("FAULTY_RUN_ON", "rank-1");
            command.env(
                "FAULTY_RUN_AFTER",
                training.path(out).join("checkpoints/step-4"),
            );
        }
        command
    };
    let whole = finished(run("whole", "", None), &training.path("whole"));
    for (kind, words) in [("panic", "was told to panic"), ("hang", "it hangs")] {
        let mut command = run(kind, "", Some(&format!("launch:{kind}")));
        let child = command
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("the host starts");
        await_path(&training.path(kind).join("checkpoints/step-4"));
        let started = Instant::now();
        let output = child.wait_with_output().expect("it is ours");
        let took = started.elapsed();
        let line = last_line(&output);
        assert_eq!(output.status.code(), Some(6), "{kind}: {line}");
        assert!(took <= IN_TIME, "{kind}: {took:?}: {line}");
        assert!(line.starts_with("error: rank 1, step "), "{kind}: {line}");
        for word in [words, "call ", "; next: "] {
            assert!(line.contains(word), "{kind}: no {word:?} in {line}");
        }
        let resumed = finished(run(kind, "--resume", None), &training.path(kind));
        assert!(resumed == whole, "{kind}: a resumed run gives other bits");
    }
}

/// The run in processes, until it ends.
fn to_the_end(training: &Training, out: &str, more: &str) -> (String, Trained) {
    let group = RankGroup::of(RANKS, training, out, more);
    let (output, codes) = group.end();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "{out} {more}: {codes:?}: {printed}"
    );
    (printed, trained(&training.path(out)))
}

fn finished(mut command: Command, out: &Path) -> Trained {
    let output = command.output().expect("the host starts");
    assert!(output.status.success(), "{}", last_line(&output));
    trained(out)
}

fn await_path(path: &Path) {
    let started = Instant::now();
    while !path.exists() {
        assert!(started.elapsed().as_secs() < 300, "no {}", path.display());
        thread::sleep(Duration::from_millis(2));
    }
}
