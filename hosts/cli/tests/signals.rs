//! A signal ends a run after the step it is in: a checkpoint is saved, and the exit code says so.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest wait for a run's first steps on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/llama/tiny")
}

/// Starts a run of far more steps than will be done.
fn endless(dir: &Path) -> Child {
    let rows = "{\"text\": \"the quick brown fox jumps over the lazy dog\"}\n".repeat(64);
    fs::write(dir.join("rows.jsonl"), rows).expect("written");
    Command::new(env!("CARGO_BIN_EXE_host"))
        .current_dir(dir)
        .args(["train", "--plugins", "nf4,lora", "--data", "rows.jsonl"])
        .args(["--out", "out", "--set", "run.epochs=5000", "--model"])
        .arg(model())
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the program was built")
}

fn steps(dir: &Path) -> usize {
    let metrics = fs::read_to_string(dir.join("out/metrics.jsonl"));
    metrics.map_or(0, |text| text.lines().count())
}

#[test]
fn a_signal_ends_the_run_after_its_step_and_a_checkpoint_is_saved() {
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut run = endless(dir.path());
        let begin = Instant::now();
        while steps(dir.path()) < 2 {
            let ended = run.try_wait().expect("it was started here");
            assert!(ended.is_none(), "it ended by itself: {ended:?}");
            assert!(begin.elapsed() < PATIENCE, "no step in {PATIENCE:?}");
            sleep(Duration::from_millis(10));
        }
        let sent = Command::new("kill")
            .args([format!("-{name}"), run.id().to_string()])
            .status();
        assert!(sent.expect("a shell's kill").success());
        let output = run.wait_with_output().expect("it was started here");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = text.lines().last().unwrap_or_default();
        assert_eq!(output.status.code(), Some(code), "{name}: {text}");
        assert!(last.starts_with("error: stopped by signal"), "{last}");
        let step = steps(dir.path());
        let saved = format!("out/checkpoints/step-{step}");
        assert!(last.contains("; next: go on with --resume"), "{last}");
        assert!(last.contains(&saved), "{last}: {step} lines of metrics");
        let adapter = dir
            .path()
            .join(saved)
            .join("adapter/adapter_model.safetensors");
        assert!(adapter.is_file(), "{name}: nothing was saved");
        assert!(!dir.path().join("out/adapter").exists(), "{name}");
    }
}
