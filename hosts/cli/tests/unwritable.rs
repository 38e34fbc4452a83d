//! Standard error or standard output that cannot be written: the work completes, and the messages
//! are in the output directory's log.
#![cfg(target_os = "linux")]

mod place;
use espalier_torture::training;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, pipe};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use espalier_samples::{faulty, put};
use place::{RunFolder, Weights, contents};

/// The fault of an output stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gone {
    /// Every write fails with a full disk.
    Full,
    /// Its reader is closed before anything is written.
    AtOnce,
    /// Its reader is closed after it has read a line.
    InMidRun,
}

const GONE: [Gone; 3] = [Gone::Full, Gone::AtOnce, Gone::InMidRun];

/// Commands that write to a directory, and the subdirectory of their result.
const WRITERS: [(&str, &str, &str); 4] = [
    (
        "train",
        "--data rows.jsonl --set model.compute=f32 --set run.epochs=20 --plugins lora",
        "adapter",
    ),
    ("merge", "--adapter whole-train/adapter", ""),
    ("quantize", "--plugins nf4", ""),
    (
        "compare",
        "--data rows.jsonl --set model.compute=f32 --set run.epochs=20 --set data.eval_split=1 --plugins lora --arms nf4 \
         --seeds 1",
        "arms/nf4/seed-42/adapter",
    ),
];

const EVAL: &str = "eval --threads 1 --data rows.jsonl --model m";

/// A place with a model and the undisturbed result of every command.
fn place() -> RunFolder {
    let place = RunFolder::new();
    place.model("m");
    for (name, _, _) in WRITERS {
        let output = command(&place, name, "whole").output().expect("it starts");
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
    }
    place
}

/// One of the writers, which writes to `OUT-NAME`.
fn command(place: &RunFolder, name: &str, out: &str) -> Command {
    let (_, line, _) = writer(name);
    let mut command = place.command();
    command.args([name, "--threads", "1", "--model", "m", "--out"]);
    command.arg(format!("{out}-{name}"));
    command.args(line.split_whitespace());
    command
}

fn writer(name: &str) -> (&'static str, &'static str, &'static str) {
    let found = WRITERS.into_iter().find(|writer| writer.0 == name);
    found.expect("a writer")
}

/// Its result: every file by path.
fn result(place: &RunFolder, name: &str, out: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let directory = place.path(&format!("{out}-{name}")).join(writer(name).2);
    let files = contents(&directory).into_iter();
    let files = files.map(|(path, bytes)| {
        let path = path.strip_prefix(&directory).expect("below it");
        (path.to_owned(), bytes)
    });
    let files: BTreeMap<_, _> = files.collect();
    assert!(!files.is_empty(), "{name}: nothing was written");
    files
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn full() -> Stdio {
    Stdio::from(
        File::options()
            .write(true)
            .open("/dev/full")
            .expect("Linux"),
    )
}

/// A pipe without a reader.
fn closed() -> Stdio {
    let (reader, writer) = pipe().expect("a pipe");
    drop(reader);
    Stdio::from(writer)
}

/// The end of the command with this fault of standard error; standard output is in the result.
fn without_stderr(mut command: Command, gone: Gone) -> Output {
    command.stdout(Stdio::piped());
    command.stderr(match gone {
        Gone::Full => full(),
        Gone::AtOnce => closed(),
        Gone::InMidRun => Stdio::piped(),
    });
    let mut child = command.spawn().expect("it starts");
    if let Some(stderr) = child.stderr.take() {
        let mut line = String::new();
        let mut reader = BufReader::with_capacity(1, stderr);
        reader.read_line(&mut line).expect("a line");
        assert!(line.ends_with('\n'), "{line:?}");
    }
    child.wait_with_output().expect("it was started here")
}

#[test]
fn standard_error_that_cannot_be_written_ends_nothing() {
    let place = place();
    for (name, _, _) in WRITERS {
        for gone in GONE {
            let (case, out) = (format!("{name}, {gone:?}"), format!("{gone:?}"));
            let output = without_stderr(command(&place, name, &out), gone);
            assert_eq!(output.status.code(), Some(0), "{case}: {:?}", output.status);
            assert!(!output.stdout.is_empty(), "{case}: nothing was printed");
            let (found, expected) = (result(&place, name, &out), result(&place, name, "whole"));
            assert!(found == expected, "{case}: another result");
        }
    }
    let whole = place.command().args(EVAL.split(' ')).output();
    let whole = text(&whole.expect("it starts").stdout);
    for gone in GONE {
        let mut command = place.command();
        command.args(EVAL.split(' '));
        let output = without_stderr(command, gone);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{gone:?}: {:?}",
            output.status
        );
        let found = text(&output.stdout);
        assert_eq!(found.lines().next(), whole.lines().next(), "{gone:?}");
    }
}

#[test]
fn messages_that_are_not_read_are_in_the_log() {
    let place = place();
    for (name, words) in [
        (
            "train",
            ["with llama, lora", "step 20/20", "saved ", "steps done"],
        ),
        (
            "compare",
            [
                "[1/2] dense seed 42: ",
                "[2/2] nf4 seed 42: step 20/20",
                "saved ",
                "eval after",
            ],
        ),
    ] {
        for (out, quiet) in [("lost", ""), ("quiet", "--quiet")] {
            let mut command = command(&place, name, out);
            command.args(quiet.split_whitespace());
            let output = without_stderr(command, Gone::AtOnce);
            assert_eq!(output.status.code(), Some(0), "{name}");
            let log = place.read(&format!("{out}-{name}/log.txt"));
            let mut lines = log.lines();
            let header = lines.next().unwrap_or_default();
            assert!(header.contains(" === process "), "{name}: {header}");
            assert!(
                header.contains(&format!("host {name} "))
                    || header.contains(&format!("host' {name} ")),
                "{header}"
            );
            for word in words {
                assert!(log.contains(word), "{name}: no {word:?} in {log}");
            }
            assert!(!log.contains('\u{1b}') && !log.contains('\r'), "{log:?}");
        }
    }
}

#[test]
fn the_error_that_ends_a_run_is_in_its_log() {
    let place = RunFolder::new();
    place.model("m");
    let diverging = "--set optim.learning_rate=1e30 --set run.max_steps=9 --set run.epochs=9";
    let more = format!("--plugins lora --out out {diverging}");
    let mut command = place.command();
    command.args(RunFolder::words("m", &more));
    let output = without_stderr(command, Gone::AtOnce);
    let log = place.read("out/log.txt");
    let last = log.lines().last().unwrap_or_default();
    assert_eq!(output.status.code(), Some(7), "{log}");
    assert!(
        last.contains("error: ") && last.contains("; next: "),
        "{log}"
    );
}

#[test]
fn a_loading_error_is_printed_or_in_the_log() {
    let place = RunFolder::new();
    place.model("m");
    Weights::edit(&place.path("m/model.safetensors"), |weights| {
        weights.data("model.norm.weight")[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    });
    let words = RunFolder::words("m", "--plugins lora --out out");
    let shown = place.command().args(&words).output().expect("it starts");
    assert_eq!(shown.status.code(), Some(4), "{}", text(&shown.stderr));
    assert!(
        !place.path("out").exists(),
        "it leaves the directory as it was"
    );
    let mut command = place.command();
    command.args(&words);
    let lost = without_stderr(command, Gone::Full);
    assert_eq!(lost.status.code(), Some(4));
    let (shown, log) = (text(&shown.stderr), place.read("out/log.txt"));
    let line = shown.lines().last().unwrap_or_default();
    assert!(
        log.lines().last().is_some_and(|last| last.ends_with(line)),
        "{log}"
    );
    // The log does not block the directory for the next run.
    place.model("whole");
    place.train("whole", "--plugins lora --out out").succeeded();
}

#[test]
fn crashes_and_panics_keep_their_exit_code_and_are_in_the_log() {
    for (fault, words) in [
        (
            "encode:segfault",
            "crashed with signal 11 (SIGSEGV) in encode; next: ",
        ),
        ("encode:panic", "failed in encode"),
    ] {
        for gone in [Gone::Full, Gone::AtOnce] {
            let training = training::Training::new("--plugins faulty,lora --plugin-dir plugins");
            fs::create_dir(training.path("plugins")).expect("a folder");
            put(&training.path("plugins/libcase.so"), &faulty(fault));
            let mut command = training.command("out", "");
            command.env("FAULT_CALL", "1");
            let output = without_stderr(command, gone);
            let log = fs::read_to_string(training.path("out/log.txt")).expect("a log");
            assert_eq!(output.status.code(), Some(5), "{fault}, {gone:?}: {log}");
            let last = log.lines().last().unwrap_or_default();
            assert!(last.contains(words), "{fault}: {log}");
        }
    }
}

/// The exit code and standard error with `out` as standard output.
fn with_stdout(mut command: Command, out: Stdio) -> (Option<i32>, String) {
    let output = command.stdout(out).stderr(Stdio::piped()).output();
    let output = output.expect("it starts");
    (output.status.code(), text(&output.stderr))
}

#[test]
fn unwritable_standard_output_gives_exit_code_8_and_complete_work() {
    let place = place();
    for (name, _, inside) in WRITERS {
        let (code, printed) = with_stdout(command(&place, name, "full"), full());
        assert_eq!(code, Some(8), "{name}: {printed}");
        let inside = if name == "train" { inside } else { "" };
        let lies = Path::new(&format!("full-{name}")).join(inside);
        let lies = format!(
            "its result is in {}",
            lies.display().to_string().trim_end_matches('/')
        );
        let last = printed.lines().last().unwrap_or_default();
        assert!(
            last.starts_with("error: standard output cannot be written: "),
            "{name}: {printed}"
        );
        assert!(last.ends_with(&lies), "{name}: {last}");
        assert!(
            result(&place, name, "full") == result(&place, name, "whole"),
            "{name}: another result"
        );
        let (code, printed) = with_stdout(command(&place, name, "closed"), closed());
        assert_eq!(code, Some(0), "{name}: {printed}");
        assert!(!printed.contains("error: "), "{name}: {printed}");
        assert!(
            result(&place, name, "closed") == result(&place, name, "whole"),
            "{name}: another result"
        );
    }
}

#[test]
fn output_that_is_only_printed_is_reported_if_it_cannot_be_printed() {
    let place = place();
    for (more, first) in [("", "loss "), (" --json", "{")] {
        let mut command = place.command();
        command.args(format!("{EVAL}{more} --quiet").split(' '));
        let (code, printed) = with_stdout(command, full());
        assert_eq!(code, Some(8), "{printed}");
        assert!(printed.starts_with(first), "{printed}");
        let last = printed.lines().last().unwrap_or_default();
        assert!(
            last.contains("; next: ") && last.ends_with("standard error"),
            "{last}"
        );
    }
    for line in [
        "plan --model m",
        "doctor",
        "plugins list",
        "data show --model m --data rows.jsonl",
        "generate --model m --prompt a --max-tokens 3",
        "report whole-train",
        "report whole-compare",
        "train --help",
        "--version",
    ] {
        let host = || {
            let mut command = place.command();
            command.args(line.split(' '));
            command
        };
        let (code, printed) = with_stdout(host(), full());
        assert_eq!(code, Some(8), "{line}: {printed}");
        let last = printed.lines().last().unwrap_or_default();
        assert!(
            last.starts_with("error: standard output cannot be written: "),
            "{line}: {printed}"
        );
        assert!(last.contains("; next: "), "{line}: {last}");
        let (code, printed) = with_stdout(host(), closed());
        assert_eq!(code, Some(0), "{line}: {printed}");
        assert!(!printed.contains("error: "), "{line}: {printed}");
    }
}

#[test]
fn an_unread_usage_error_has_its_exit_code() {
    let place = RunFolder::new();
    for line in ["", "train --nonsense", "train --out out"] {
        for gone in [Gone::Full, Gone::AtOnce] {
            let mut command = place.command();
            command.args(line.split_whitespace());
            let output = without_stderr(command, gone);
            assert_eq!(output.status.code(), Some(2), "{line}, {gone:?}");
        }
    }
}
