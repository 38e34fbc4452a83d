//! A signal ends a run after the step it is in: a checkpoint is saved, the exit code says so, and the run can go on.

mod training;

use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use training::{Training, refused};

/// Longest wait for a run's first steps on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Steps of a run that is stopped after some of them: a second and more.
const STEPS: usize = 1200;

fn steps(training: &Training) -> usize {
    let metrics = fs::read_to_string(training.path("out/metrics.jsonl"));
    let steps = |text: String| {
        text.lines()
            .filter(|line| line.contains("grad_norm"))
            .count()
    };
    metrics.map_or(0, steps)
}

#[test]
fn a_signal_ends_the_run_after_its_step_and_the_run_goes_on_to_the_same_bits() {
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let training = Training::new(&format!(
            "--plugins nf4,lora --set run.epochs={} --set run.save_every=100000 \
             --set run.eval_every=500",
            STEPS / 3
        ));
        let mut run = training.command("out", "");
        let run = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut run = run.expect("the program was built");
        let begin = Instant::now();
        while steps(&training) < 2 {
            let ended = run.try_wait().expect("it was started here");
            assert!(ended.is_none(), "it ended by itself: {ended:?}");
            assert!(begin.elapsed() < PATIENCE, "no step in {PATIENCE:?}");
            sleep(Duration::from_millis(5));
        }
        // Meanwhile the directory is taken, whatever is asked for.
        for more in ["", "--resume"] {
            training.refuse("out", more, 2, "is in use by process");
        }
        let sent = Command::new("kill")
            .args([format!("-{name}"), run.id().to_string()])
            .status();
        assert!(sent.expect("a shell's kill").success());
        let output = run.wait_with_output().expect("it was started here");
        let done = steps(&training);
        assert!(done < STEPS, "{name}: it had done all");
        let saved = format!("out/checkpoints/step-{done}");
        let words =
            format!("stopped by signal | after step {done} | go on with --resume | {saved}");
        refused(&output, code, &words, name);
        assert!(!training.path("out/adapter").exists(), "{name}");
        let went_on = training.succeed("out", "--resume");
        assert_eq!(went_on.metrics.len(), STEPS + 4, "{name}");
        assert!(
            went_on == training.succeed("whole", ""),
            "{name}: other bits"
        );
    }
}
