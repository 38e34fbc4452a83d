//! Pipes, devices and endless numbers in place of files and threads -> an immediate refusal in
//! little memory.

mod place;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use place::{Outcome, RunFolder, copy_directory};

/// Address space of the program, in KiB: an endless read fails before the machine runs out of
/// memory.
const MEMORY_KIB: u64 = 4 << 20;
/// Time limit of a refusal on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// The special file in place of a regular one.
#[derive(Clone, Copy)]
enum Thing {
    Pipe,
    /// A link to `/dev/zero`, which never ends.
    Zero,
}

impl Thing {
    fn create_at(self, path: &Path) {
        if path.symlink_metadata().is_ok() {
            fs::remove_file(path).expect("removed");
        }
        match self {
            Thing::Pipe => {
                let made = Command::new("mkfifo").arg(path).status();
                assert!(
                    made.expect("mkfifo starts").success(),
                    "no pipe at {}",
                    path.display()
                );
            }
            Thing::Zero => symlink("/dev/zero", path).expect("a link"),
        }
    }

    fn found(self) -> &'static str {
        match self {
            Thing::Pipe => "a pipe",
            Thing::Zero => "a device",
        }
    }
}

/// Runs the host with the arguments `line`, and expects it to end within the limit.
fn ended(place: &RunFolder, case: &str, line: &str) -> Outcome {
    let mut command = Command::new("sh");
    command.current_dir(place.0.path());
    command.env("XDG_DATA_HOME", place.0.path());
    command
        .arg("-c")
        .arg(format!("ulimit -v {MEMORY_KIB}; exec \"$@\""));
    command
        .args(["sh", env!("CARGO_BIN_EXE_host")])
        .args(line.split_whitespace());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the host starts");
    let begin = Instant::now();
    // A refusal prints a few lines, which fit into the pipe of its standard error.
    while child.try_wait().expect("a child").is_none() {
        if begin.elapsed() > LIMIT {
            child.kill().expect("killed");
            child.wait().expect("ended");
            panic!("{case}: still running after {LIMIT:?}: {line}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Outcome::new(&child.wait_with_output().expect("its output"))
}

const TRAIN: &str = "train --quiet --threads 1 --set model.compute=f32 --set run.max_steps=1 --plugins lora --out out";

/// A conversation, for which a template is read.
const CHAT: &str = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}\n";

/// Commands that read files, one for every kind: the file, the command, its exit code and the kind
/// of file expected. Arguments after `train` are appended to [`TRAIN`].
const READERS: [(&str, &str, i32, &str); 15] = [
    (
        "model/tokenizer.json",
        "train --model model --data text.jsonl",
        3,
        "a tokenizer",
    ),
    (
        "model/tokenizer_config.json",
        "train --model model --data text.jsonl",
        3,
        "a JSON config",
    ),
    (
        "model/chat_template.jinja",
        "data show --model model --data chat.jsonl",
        3,
        "a chat template",
    ),
    (
        "own.jinja",
        "train --model model --data chat.jsonl --set data.chat_template=./own.jinja",
        3,
        "a chat template",
    ),
    (
        "own.jsonl",
        "train --model model --data own.jsonl",
        3,
        "a file of rows",
    ),
    (
        "own.json",
        "train --model model --data own.json",
        3,
        "a file of rows",
    ),
    (
        "own.parquet",
        "train --model model --data own.parquet",
        3,
        "a file of rows",
    ),
    (
        "own.jsonl",
        "train --model model --data rows.jsonl --set data.eval_files=own.jsonl",
        3,
        "a file of rows",
    ),
    (
        "own.jsonl",
        "eval --model model --data own.jsonl",
        3,
        "a file of rows",
    ),
    (
        "own.toml",
        "train --model model --data rows.jsonl --config own.toml",
        2,
        "a config file",
    ),
    (
        "own.txt",
        "generate --model model --prompts own.txt",
        2,
        "a file of prompts",
    ),
    (
        "own.json",
        "plugins check own.so --model-config own.json",
        2,
        "a JSON config",
    ),
    ("own/run.json", "report own", 2, "a record of a run"),
    (
        "own/run.json",
        "generate --run own --prompt a",
        4,
        "a record of a run",
    ),
    (
        "own/metrics.jsonl",
        "report own",
        2,
        "a file of measurements",
    ),
];

#[test]
fn a_pipe_or_a_device_in_place_of_a_file_is_refused_by_kind_and_path() {
    for thing in [Thing::Pipe, Thing::Zero] {
        for (file, line, code, kind) in READERS {
            let line = match line.strip_prefix("train ") {
                Some(more) => format!("{TRAIN} {more}"),
                None => line.to_owned(),
            };
            let place = RunFolder::new();
            place.model("model");
            place.write("text.jsonl", "{\"text\": \"in the beginning\"}\n");
            place.write("chat.jsonl", CHAT);
            place.write("own.so", "");
            fs::create_dir(place.path("own")).expect("created");
            place.write("own/run.json", "{}");
            thing.create_at(&place.path(file));
            let case = format!("{} as {file}: {line}", thing.found());
            let words = format!("{file} | {kind} | {}", thing.found());
            ended(&place, &case, &line).refused(&case, code, &words);
            assert_eq!(place.names("out"), "", "{case}");
        }
    }
}

/// A link in a model's or adapter's directory must not point outside it, to any kind of file.
#[test]
fn a_pipe_or_a_device_in_place_of_a_model_or_adapter_file_is_refused() {
    let line = format!("{TRAIN} --model model --data rows.jsonl --adapter adapter");
    for thing in [Thing::Pipe, Thing::Zero] {
        for file in [
            "model/config.json",
            "model/model.safetensors",
            "adapter/adapter_config.json",
        ] {
            let place = RunFolder::new();
            place.model("model");
            copy_directory("adapter_trained_f32", &place.path("adapter"));
            thing.create_at(&place.path(file));
            let words = match thing {
                Thing::Pipe => "a pipe",
                Thing::Zero => "is a link to /dev/zero",
            };
            let case = format!("{} as {file}", thing.found());
            ended(&place, &case, &line).refused(&case, 4, &format!("{file} | {words}"));
        }
    }
}

#[test]
fn a_pipe_or_a_device_in_an_output_directory_is_refused_when_a_run_resumes() {
    let line = format!("{TRAIN} --model model --data rows.jsonl --set data.eval_split=1 --resume");
    let files = [
        "run.json",
        "metrics.jsonl",
        "run.lock",
        "tensorboard/events.out.tfevents.0000000000.espalier",
        "tensorboard/events.out.tfevents.0000000007.espalier",
        "held_out/step-0.json",
    ];
    let place = RunFolder::new();
    place.model("model");
    ended(&place, "whole", &line.replace(" --resume", "")).succeeded();
    for thing in [Thing::Pipe, Thing::Zero] {
        // A finished run, an unfinished one, and one that has not started.
        for (without, code) in [
            (&[][..], 4),
            (&["adapter"], 4),
            (&["adapter", "checkpoints"], 4),
        ] {
            for file in files {
                let out = place.path("out");
                let aside = place.path("aside");
                copy_tree(&out, &aside);
                for name in without {
                    fs::remove_dir_all(out.join(name)).expect("removed");
                }
                thing.create_at(&out.join(file));
                let case = format!("{} as {file} without {without:?}", thing.found());
                let words = format!("{file} | regular file | {}", thing.found());
                ended(&place, &case, &line).refused(&case, code, &words);
                let left = out.join(file).symlink_metadata().expect("it exists");
                assert!(!left.is_file(), "{case}");
                fs::remove_dir_all(&out).expect("removed");
                fs::rename(&aside, &out).expect("moved");
            }
        }
    }
    ended(&place, "whole again", &line).succeeded();
}

/// Copies a directory tree.
fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir(to).expect("created");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy_tree(&entry.path(), &to)
        } else {
            fs::copy(entry.path(), to).expect("copied");
        }
    }
}

#[test]
fn a_file_beyond_the_largest_of_its_kind_is_refused_unread() {
    let place = RunFolder::new();
    place.model("model");
    place.write("chat.jsonl", CHAT);
    place.write("text.jsonl", "{\"text\": \"in the beginning\"}\n");
    for (file, line, code, words) in [
        (
            "own.toml",
            "train --config own.toml --model model --data rows.jsonl --out out",
            2,
            "a config file may have at most 16.00 MiB, found 1099511627776 bytes",
        ),
        (
            "own.jinja",
            "data show --model model --data chat.jsonl --set data.chat_template=./own.jinja",
            3,
            "a chat template may have at most 1.00 MiB, found 1099511627776 bytes",
        ),
        (
            "model/tokenizer.json",
            "data show --model model --data text.jsonl",
            3,
            "a tokenizer may have at most 256.00 MiB, found 1099511627776 bytes",
        ),
    ] {
        // Sparse: it takes no disk space.
        let sparse = fs::File::create(place.path(file)).expect("created");
        sparse.set_len(1 << 40).expect("sized");
        ended(&place, file, line).refused(file, code, &format!("{file} | {words}"));
    }
}

#[test]
fn more_threads_than_a_machine_has_are_refused() {
    let place = RunFolder::new();
    place.model("model");
    for more in [
        "--threads 999999999",
        "--set run.threads=1000000",
        "--set run.threads=1025",
    ] {
        let line = format!("train --quiet --model model --data rows.jsonl --out out {more}");
        let words = "`run.threads` must be from 1 to 1024";
        ended(&place, more, &line).refused(more, 2, words);
    }
    let shown = "data show --model model --data rows.jsonl --set run.threads=1000000";
    ended(&place, shown, shown).refused(shown, 2, "`run.threads` must be from 1 to 1024");
}
