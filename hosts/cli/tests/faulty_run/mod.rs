//! Runs with a plugin that fails in a callback -> exit code, the plugin named, remaining files.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use espalier_torture::built;
use espalier_torture::training::{self, Training, last_line};
use espalier_trainer::checkpoint::{Checkpoints, ResumeFrom};

/// A run of six steps with a checkpoint every two, with the faulty library in its plugin folder.
pub struct Faulty {
    pub training: Training,
    library: PathBuf,
}

/// The failing callback and the expected words of the last line.
pub struct Case<'a> {
    pub plugins: &'a str,
    pub callback: &'a str,
    pub kind: &'a str,
    pub words: &'a str,
}

impl Faulty {
    /// A run whose plugin has no fault yet.
    pub fn new() -> Self {
        let training = Training::new("--plugin-dir plugins");
        let folder = training.path("plugins");
        fs::create_dir(&folder).expect("a folder");
        let library = folder.join("libfaulty_run.so");
        fs::copy(espalier_samples::library("faulty-run"), &library).expect("a copy");
        Faulty { training, library }
    }

    /// The program with `CALLBACK:KIND` as its plugin's fault.
    pub fn command(&self, out: &str, more: &str, fault: &str) -> Command {
        let mut command = self.training.command(out, more);
        // Drop the probe results of another fault.
        let _ = fs::remove_dir_all(self.training.path("data"));
        command.env("FAULTY_RUN", fault).env("RUST_BACKTRACE", "0");
        command.env("FAULTY_RUN_CPU", built::library("backend_cpu"));
        command
    }

    /// Runs it to the end with that fault.
    pub fn run(&self, out: &str, more: &str, fault: &str) -> Output {
        let mut command = self.command(out, more, fault);
        command.output().expect("the host starts")
    }

    /// Expects a run of `case` to be refused before training, with the plugin, its file and the
    /// callback named.
    pub fn refuses(&self, case: &Case<'_>) {
        let fault = format!("{}:{}", case.callback, case.kind);
        let output = self.run("refused", &format!("--plugins {}", case.plugins), &fault);
        self.names_plugin(&output, case);
        let _ = fs::remove_dir_all(self.training.path("refused"));
    }

    /// Expects `output` to be that of a run that `case` ended, with its plugin named.
    pub fn names_plugin(&self, output: &Output, case: &Case<'_>) {
        let component = case.plugins.split([',', ' ']).next().unwrap_or_default();
        let file = fs::canonicalize(&self.library).expect("it was put there");
        let file = format!("({})", file.display());
        let callback = format!("failed in {}", case.callback);
        let name = format!("{} {}:{}", case.plugins, case.callback, case.kind);
        let all = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{name}: {all}");
        // The plugin's own panics are reported at their location; the host has none.
        assert!(!all.contains("panicked at core"), "{name}: {all}");
        let line = last_line(output);
        let shaped = line.starts_with("error: plugin `") && line.contains("; next: ");
        assert!(shaped, "{name}: {all}");
        let named = [component, &file, &callback];
        for word in named.into_iter().chain(case.words.split(" | ")) {
            assert!(line.contains(word), "{name}: no {word:?} in {line}");
        }
    }

    /// Expects a run that fails once `checkpoints/step-2` exists to keep that checkpoint whole.
    /// Without the fault, it resumes to the bits of a run that never failed.
    pub fn resumes_after(&self, case: &Case<'_>, more: &str) {
        let more = format!("--plugins {} --threads 2 {more}", case.plugins);
        let whole = format!("whole-{}", case.callback);
        if !self.training.path(&whole).exists() {
            let output = self.run(&whole, &more, "none:none");
            assert!(output.status.success(), "{}", last_line(&output));
        }
        let out = format!("{}-{}", case.callback, case.kind);
        let first = self.training.path(&out).join("checkpoints/step-2");
        let fault = format!("{}:{}", case.callback, case.kind);
        let mut command = self.command(&out, &more, &fault);
        command.env("FAULTY_RUN_AFTER", first);
        self.names_plugin(&command.output().expect("the host starts"), case);
        let checkpoints = Checkpoints::of(&self.training.path(&out));
        checkpoints
            .choose(ResumeFrom::Step(2))
            .expect("it is whole");
        let output = self.run(&out, &format!("{more} --resume"), "none:none");
        assert!(output.status.success(), "{}", last_line(&output));
        let trained = |out: &str| training::trained(&self.training.path(out));
        assert!(trained(&out) == trained(&whole), "{fault}: other bits");
    }
}
