//! Files of a finished run, damaged afterwards: resuming rewrites them from the last checkpoint, or
//! names the damage.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

use espalier_torture::built::faults;
use espalier_torture::training;
use serde_json::{Value as Json, json};
use training::{Training, copy, names, refused, trained};

/// Only the last step's checkpoint, which no option requests.
const LAST_ONLY: &str = "--set run.max_steps=3 --set run.save_every=100";
/// A run's plugins, the directory of its weights, and the weight file.
const RUNS: [(&str, &str, &str); 2] = [
    ("--plugins lora", "adapter", "adapter_model.safetensors"),
    ("", "model", "model.safetensors"),
];
/// Kinds of damage to the directory, and the words printed for each.
const DAMAGES: [(&str, &str); 5] = [
    ("deleted", "it is missing"),
    ("cut", "it has "),
    ("flipped", "its sha256 is "),
    ("emptied", "it is missing"),
    ("file", "it "),
];

fn damage(directory: &Path, weights: &str, kind: &str) {
    let path = directory.join(weights);
    let mut bytes = fs::read(&path).expect("weights");
    let last = bytes.len() - 1;
    match kind {
        "deleted" => fs::remove_file(path).expect("removed"),
        "cut" => fs::write(path, &bytes[..last]).expect("written"),
        "flipped" => {
            bytes[last - 4] ^= 1;
            fs::write(path, bytes).expect("written");
        }
        _ => {
            fs::remove_dir_all(directory).expect("removed");
            match kind {
                "emptied" => fs::create_dir(directory).expect("created"),
                _ => fs::write(directory, "mine").expect("written"),
            }
        }
    }
}

/// Resumes the run in `out`; returns its output and printed text.
fn resume(training: &Training, out: &str) -> (Output, String) {
    let quiet = training.command(out, "--resume");
    let mut command = Command::new(quiet.get_program());
    command.args(quiet.get_args().filter(|word| *word != "--quiet"));
    command.current_dir(training.folder.path());
    let output = command.output().expect("the host starts");
    let printed = [&output.stderr, &output.stdout].map(|printed| String::from_utf8_lossy(printed));
    let printed = printed.concat();
    (output, printed)
}

fn generate(training: &Training, out: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_host"));
    command.current_dir(training.folder.path());
    command.args([
        "generate",
        "--prompt",
        "a",
        "--max-tokens",
        "1",
        "--run",
        out,
    ]);
    command.output().expect("the host starts")
}

fn run_json(training: &Training, out: &str) -> Json {
    let text = fs::read(training.path(out).join("run.json")).expect("a record");
    serde_json::from_slice(&text).expect("JSON")
}

#[test]
fn files_damaged_after_the_end_are_rewritten_from_the_last_checkpoint() {
    for (plugins, name, weights) in RUNS {
        let training = Training::new(&format!("{plugins} {LAST_ONLY}"));
        let whole = training.succeed("whole", "");
        assert_eq!(names(&training.path("whole/checkpoints")), ["step-3"]);
        let exported = run_json(&training, "whole")["exported"].clone();
        assert_eq!(exported["directory"], name);
        let hashed = exported["files"].as_array().expect("files").iter();
        let hashed: Vec<_> = hashed.map(|file| file["file"].as_str()).collect();
        let left = names(&training.path("whole").join(name));
        assert_eq!(
            hashed,
            left.iter().map(|name| Some(&name[..])).collect::<Vec<_>>()
        );
        for (kind, problem) in DAMAGES {
            let case = format!("{name} {kind}");
            copy(&training.path("whole"), &training.path(kind));
            damage(&training.path(kind).join(name), weights, kind);
            if kind != "flipped" {
                let words = format!("{name} | {problem} | `host train --resume DIR`");
                refused(&generate(&training, kind), 4, &words, &case);
            }
            let (output, printed) = resume(&training, kind);
            assert!(output.status.success(), "{case}: {printed}");
            for word in [problem, "it is written again from ", "checkpoints/step-3"] {
                assert!(printed.contains(word), "{case}: no {word:?} in {printed}");
            }
            assert!(trained(&training.path(kind)) == whole, "{case}: other bits");
            assert_eq!(run_json(&training, kind)["exported"], exported, "{case}");
            let (output, printed) = resume(&training, kind);
            assert!(output.status.success(), "{case}: {printed}");
            assert!(
                printed.contains("nothing to do: this run is finished"),
                "{case}: {printed}"
            );
        }
    }
}

#[test]
fn without_a_checkpoint_the_file_is_named_and_nothing_changes() {
    for (plugins, name, weights) in RUNS {
        let training = Training::new(&format!("{plugins} {LAST_ONLY}"));
        training.succeed("whole", "");
        fs::remove_dir_all(training.path("whole/checkpoints")).expect("removed");
        for (kind, problem) in DAMAGES {
            copy(&training.path("whole"), &training.path(kind));
            damage(&training.path(kind).join(name), weights, kind);
            let words =
                format!("{kind}/{name} is not as its run left it | {problem} | another --out");
            let before = fs::read(training.path(kind).join("run.json")).expect("a record");
            training.refuse(kind, "--resume", 4, &words);
            let after = fs::read(training.path(kind).join("run.json")).expect("a record");
            assert!(before == after, "{name} {kind}: run.json was touched");
        }
    }
    // A directory with that name is not a finished run.
    let training = Training::new("--plugins lora");
    fs::create_dir_all(training.path("new/adapter")).expect("created");
    training.refuse("new", "--resume", 4, "adapter | another --out");
}

#[test]
fn files_that_the_run_did_not_write_are_kept() {
    let training = Training::new(&format!("--plugins lora {LAST_ONLY}"));
    let whole = training.succeed("whole", "");
    let notes = training.path("whole/adapter/notes.txt");
    fs::write(&notes, "mine").expect("written");
    let (_, printed) = resume(&training, "whole");
    assert!(
        printed.contains("nothing to do: this run is finished"),
        "{printed}"
    );
    damage(
        &training.path("whole/adapter"),
        "adapter_model.safetensors",
        "cut",
    );
    training.refuse(
        "whole",
        "--resume",
        2,
        "notes.txt would be lost | move that file away",
    );
    assert_eq!(fs::read(&notes).expect("still there"), b"mine");
    fs::remove_file(&notes).expect("removed");
    assert_eq!(training.succeed("whole", "--resume"), whole);
}

#[test]
fn a_run_with_a_damaged_record_is_not_finished() {
    let training = Training::new(&format!("--plugins lora {LAST_ONLY}"));
    let whole = training.succeed("whole", "");
    let record = training.path("whole/run.json");
    let text = fs::read_to_string(&record).expect("a record");
    fs::write(&record, &text[..text.len() / 2]).expect("written");
    let (output, printed) = resume(&training, "whole");
    assert!(output.status.success(), "{printed}");
    assert!(
        printed.contains("run.json") && printed.contains("it is written again from"),
        "{printed}"
    );
    assert!(trained(&training.path("whole")) == whole);
    // A directory's name does not make a started run finished.
    let mut run = run_json(&training, "whole");
    run["exported"] = json!(null);
    fs::write(&record, run.to_string()).expect("written");
    let (output, printed) = resume(&training, "whole");
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("the run had not written it"), "{printed}");
}

/// A kill at any call after the last step's checkpoint leaves a run that resumes to the same files.
#[test]
fn a_run_killed_at_any_call_of_its_end_resumes_to_the_same_bits() {
    let training = Training::new(&format!("--plugins lora {LAST_ONLY}"));
    let whole = training.succeed("whole", "");
    let log = training.path("calls");
    let faulty = |out: &str, call: usize| {
        let mut command = training.command(out, "");
        command
            .env("LD_PRELOAD", faults())
            .env("FAULT_KIND", "kill");
        command
            .env("FAULT_PREFIX", training.path(out))
            .env("FAULT_CALL", call.to_string());
        command
    };
    let output = faulty("counted", 0).env("FAULT_LOG", &log).output();
    assert!(output.expect("it starts").status.success());
    let calls = fs::read_to_string(log).expect("the calls");
    let calls: Vec<&str> = calls.lines().collect();
    let begin = calls
        .iter()
        .position(|call| call.contains("step-3.partial"));
    let begin = begin.expect("the last checkpoint");
    // Between two of these the disk does not change, except the length of an unnamed file.
    let changes = [
        "mkdir",
        "rename",
        "renameat2",
        "unlink",
        "unlinkat",
        "rmdir",
        "fsync",
    ];
    let killed = (begin..calls.len()).filter(|call| {
        let name = calls[*call].split(' ').next();
        changes.contains(&name.unwrap_or_default())
    });
    let killed: Vec<usize> = killed.collect();
    assert!(killed.len() > 20, "{} calls: {calls:#?}", killed.len());
    for call in killed {
        let (out, case) = (format!("killed-{call}"), calls[call]);
        let output = faulty(&out, call + 1).output().expect("it starts");
        assert_eq!(output.status.signal(), Some(libc::SIGKILL), "{case}");
        assert_eq!(training.succeed(&out, "--resume"), whole, "{case}");
        let names_of = |out: &str| names(&training.path(out));
        assert_eq!(names_of(&out), names_of("whole"), "{case}");
        fs::remove_dir_all(training.path(&out)).expect("removed");
    }
}

/// Ranks that cannot write their last checkpoint are not lost, though the export takes longer than
/// the timeout of a lost rank.
#[test]
fn ranks_without_disk_space_for_the_last_checkpoint_still_export() {
    for plugins in ["lora,ddp", "lora,fsdp"] {
        let training = Training::new(&format!("--plugins {plugins} --ranks 2 {LAST_ONLY}"));
        let whole = training.succeed("whole", "");
        let mut command = training.command("out", "");
        command
            .env("LD_PRELOAD", faults())
            .env("FAULT_PREFIX", training.path("out"))
            .env("FAULT_FROM", "step-3.partial/params")
            .env("FAULT_CALL", "1")
            .env("FAULT_KIND", "enospc")
            .env("FAULT_SLOW", "out/adapter.partial/");
        let output = command.output().expect("the host starts");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{plugins}: {printed}");
        assert!(
            printed.contains("the last step has no checkpoint"),
            "{plugins}: {printed}"
        );
        assert!(
            names(&training.path("out/checkpoints")).is_empty(),
            "{plugins}"
        );
        assert!(
            trained(&training.path("out")) == whole,
            "{plugins}: other bits"
        );
    }
}
