//! A run of a few steps on a tiny model, and its results that must be equal bit for bit on every
//! path to them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value as Json, json};

use crate::built::{golden, program};
use crate::ended::is_shaped;

/// Values of a line of metrics that do not depend on the clock.
pub const EXACT: [&str; 7] = [
    "step",
    "loss",
    "grad_norm",
    "learning_rate",
    "trained_tokens",
    "eval_loss",
    "eval_token_accuracy",
];

/// A folder with rows, and the arguments of a run on them.
pub struct Training {
    /// Removed with it.
    pub folder: tempfile::TempDir,
    words: Vec<String>,
}

/// Results that must be equal bit for bit: the exact values of every line of metrics, and every
/// trained file.
#[derive(Debug, PartialEq)]
pub struct Trained {
    /// Lines of exact values.
    pub metrics: Vec<Vec<Json>>,
    /// Bytes by name.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Trained {
    /// Panics where losses and norms differ from `expected` by more than rounding in f64.
    pub fn assert_close(&self, expected: &Trained, case: &str) {
        assert_eq!(self.metrics.len(), expected.metrics.len(), "{case}");
        let numbers = |run: &Trained| -> Vec<Option<f64>> {
            run.metrics.iter().flatten().map(Json::as_f64).collect()
        };
        let (found, expected) = (numbers(self), numbers(expected));
        assert_eq!(found.len(), expected.len(), "{case}");
        for (found, expected) in found.into_iter().zip(expected) {
            let (Some(found), Some(expected)) = (found, expected) else {
                assert_eq!(found, expected, "{case}");
                continue;
            };
            let error = (found - expected).abs() / expected.abs().max(1e-3);
            assert!(error <= 1e-11, "{case}: {found} instead of {expected}");
        }
    }
}

impl Training {
    /// Six steps in two passes over five rows, a sixth held out; `more` follows on the command
    /// line.
    pub fn new(more: &str) -> Self {
        let model = golden("llama/tiny");
        Training::on(&model, more)
    }

    /// As [`Training::new`], on another model.
    pub fn on(model: &Path, more: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let row = |start: u32| json!({"input_ids": (start..start + 6).collect::<Vec<_>>()});
        let rows: String = (0..6)
            .map(|index| format!("{}\n", row(5 + 9 * index)))
            .collect();
        fs::write(folder.path().join("rows.jsonl"), rows).expect("written");
        let line = format!(
            "--quiet --threads 1 --data rows.jsonl --set model.compute=f32 \
             --set run.epochs=2 --set data.batch_size=2 --set data.eval_split=1 \
             --set run.eval_every=3 --set run.save_every=2 --model {} {more}",
            model.display()
        );
        let words = line.split_whitespace().map(str::to_owned).collect();
        Training { folder, words }
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The program with the run's arguments, and `more`; the output is an absolute path.
    pub fn command(&self, out: &str, more: &str) -> Command {
        self.command_of("train", out, more)
    }

    /// As [`Training::command`], for another command with the same arguments.
    pub fn command_of(&self, name: &str, out: &str, more: &str) -> Command {
        let mut command = self.program();
        command.arg(name).args(&self.words);
        command.arg("--out").arg(self.path(out));
        command.args(more.split_whitespace());
        command
    }

    /// The program in the folder, with plugins and caches of its own.
    pub fn program(&self) -> Command {
        let mut command = Command::new(program());
        command.current_dir(self.folder.path());
        command.env("XDG_DATA_HOME", self.path("data"));
        command
    }

    /// Runs the program with `words` alone until it ends.
    pub fn host(&self, words: &str) -> Output {
        let mut command = self.program();
        command.args(words.split_whitespace());
        command.output().expect("the host starts")
    }

    /// Runs it until it ends.
    pub fn run(&self, out: &str, more: &str) -> Output {
        self.command(out, more).output().expect("the host starts")
    }

    /// Runs it, and expects success.
    pub fn succeed(&self, out: &str, more: &str) -> Trained {
        let output = self.run(out, more);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{out} {more}: {}",
            last_line(&output)
        );
        trained(&self.path(out))
    }

    /// A copy of the finished run `from` without the file written last.
    pub fn unfinished(&self, from: &str, to: &str) {
        copy(&self.path(from), &self.path(to));
        for name in ["adapter", "model"] {
            let saved = self.path(to).join(name);
            if saved.is_dir() {
                fs::remove_dir_all(saved).expect("removed");
            }
        }
    }

    /// Runs it, and expects it to end with `code`. Its last line must have a next step and all of
    /// `words`, separated by ` | `.
    pub fn refuse(&self, out: &str, more: &str, code: i32, words: &str) -> String {
        refused(&self.run(out, more), code, words, more)
    }
}

/// Expects a last line with a cause, a next step and all of `words`, and returns it.
pub fn refused(output: &Output, code: i32, words: &str, case: &str) -> String {
    let line = last_line(output);
    let all = String::from_utf8_lossy(&output.stderr);
    assert!(!all.contains("panicked"), "{case}: {all}");
    assert_eq!(output.status.code(), Some(code), "{case}: {all}");
    assert!(is_shaped(&line, code), "{case}: {all}");
    for word in words.split(" | ") {
        assert!(line.contains(word), "{case}: no {word:?} in {line}");
    }
    line
}

/// All of standard error: a launcher's own lines follow those of its processes.
pub fn messages(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The last line on standard error.
pub fn last_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().last().unwrap_or_default().to_owned()
}

/// The results of a finished run.
pub fn trained(out: &Path) -> Trained {
    let metrics = fs::read_to_string(out.join("metrics.jsonl")).expect("metrics");
    let saved = ["adapter", "model"].map(|name| out.join(name));
    let saved = saved
        .iter()
        .find(|path| path.is_dir())
        .expect("an adapter or a model");
    Trained {
        metrics: exact(&metrics),
        files: files(saved),
    }
}

/// The exact values of lines of metrics, nulls for a damaged line. Swaps have their own lines with
/// their duration.
pub fn exact(metrics: &str) -> Vec<Vec<Json>> {
    let lines = metrics.lines().filter(|line| !line.contains("\"swap\":"));
    let line = |line: &str| {
        let line: Json = serde_json::from_str(line).unwrap_or_default();
        EXACT.iter().map(|key| line[key].clone()).collect()
    };
    lines.map(line).collect()
}

/// The files of a directory by name.
pub fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .filter(|path| path.is_file())
        .map(|path| {
            let name = path
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            (name, fs::read(&path).expect("a file"))
        })
        .collect()
}

/// The sorted names in a directory, including hidden ones; none if it does not exist.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names: Vec<String> = entries
        .map(|entry| name(entry.expect("an entry")))
        .collect();
    names.sort();
    names
}

/// Copies a directory tree.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("created");
    for name in names(from) {
        let (from, to) = (from.join(&name), to.join(&name));
        if from.is_dir() {
            copy(&from, &to)
        } else {
            fs::copy(from, to).expect("copied");
        }
    }
}
