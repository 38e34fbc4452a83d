//! `host data doctor` -> all faults of the rows at once, and whether they would stop a run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value as Json, json};

fn doctor(folder: &Path, more: &[&str]) -> Output {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/llama/tiny");
    let mut command = Command::new(env!("CARGO_BIN_EXE_host"));
    command
        .current_dir(folder)
        .args(["data", "doctor", "--model"])
        .arg(model);
    command.args(more).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn folder(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, content) in files {
        fs::write(folder.path().join(name), content).expect("written");
    }
    let path = folder.path().to_owned();
    (folder, path)
}

fn chat(turns: &[&str]) -> String {
    let roles = ["user", "assistant"].iter().cycle();
    let turns = turns.iter().zip(roles);
    let turns = turns.map(|(text, role)| json!({"role": role, "content": text}));
    format!("{}\n", json!({"messages": turns.collect::<Vec<_>>()}))
}

/// The arguments for the rows of [`faulty`]; they name a file that does not exist.
const FAULTY: [&str; 10] = [
    "--data",
    "chats.jsonl",
    "broken.json",
    "nowhere.jsonl",
    "--chat-template",
    "chatml",
    "--set",
    "data.max_seq_len=100",
    "--set",
    "data.eval_files=[\"held.jsonl\"]",
];

/// A folder with rows and files that have every kind of fault.
fn faulty() -> (tempfile::TempDir, PathBuf) {
    let long = "In the beginning God created the heaven and the earth. ".repeat(20);
    let first = [
        chat(&["a", "b"]),
        "{\"messages\": []}\n".to_owned(),
        chat(&["a", "b"]),
        chat(&["a", "", "c", &long]),
        chat(&[&long, "b"]),
        "{\"messages\": 3}\n".to_owned(),
    ];
    folder(&[
        ("chats.jsonl", &first.concat()),
        ("broken.json", "[{\"text\": \"a\"}, {\"text"),
        ("held.jsonl", &chat(&["a", "b"])),
    ])
}

#[test]
fn all_faults_of_all_files_are_reported_at_once() {
    let (_kept, path) = faulty();
    let found = doctor(&path, &FAULTY);
    let (out, error) = (text(&found.stdout), text(&found.stderr));
    assert_eq!(found.status.code(), Some(3), "{out}{error}");
    for part in [
        "bad: 2 rows, 2 files",
        "chats.jsonl:2: field `messages` is empty",
        "chats.jsonl:6: field `messages` is the number 3",
        "broken.json:1: the file ends inside this row",
        "cannot read nowhere.jsonl",
        "cut to data.max_seq_len",
        "left out: the prompt fills data.max_seq_len",
        "split special tokens: the chat template chatml writes <|im_end|>",
        "empty: 1 trained answers",
        "chats.jsonl:3 repeats chats.jsonl:1",
        "tokens a row: ",
        "█",
        "<- data.max_seq_len",
        "1 held-out rows are also trained on",
        "trains every answer of",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(
        error.contains("2 training rows are bad") && error.contains("would stop a run"),
        "{error}"
    );
    let listed = doctor(&path, &[&FAULTY[..], &["--rows", "1"]].concat());
    assert!(
        text(&listed.stdout).contains("and 3 more"),
        "{}",
        text(&listed.stdout)
    );
    let last = doctor(
        &path,
        &[&FAULTY[..], &["--set", "data.train_on=completion"]].concat(),
    );
    assert!(
        text(&last.stdout).contains("untrained: 1 earlier answers of conversations"),
        "{}",
        text(&last.stdout)
    );
}

#[test]
fn all_faults_of_all_files_are_counted_in_json() {
    let (_kept, path) = faulty();
    let found = doctor(&path, &[&FAULTY[..], &["--json"]].concat());
    assert_eq!(found.status.code(), Some(3));
    let found: Json = serde_json::from_slice(&found.stdout).expect("JSON");
    let training = &found["training"];
    assert_eq!(training["bad_rows"]["fields"], 2);
    assert_eq!(
        (&training["file_faults"], &training["repeated"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(training["counts"]["prompt_fills"], 1);
    assert_eq!(found["held_out_trained"], 1);
    let at = training["lengths"]["at"].as_array().expect("lengths");
    let own = at
        .iter()
        .find(|at| at["max_seq_len"] == 100)
        .expect("the config's");
    assert_eq!(
        (&own["longer"], &own["prompt_fills"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(at.last().expect("the longest")["lost_truncated"], 0.0);
}

#[test]
fn sound_rows_end_with_exit_code_0() {
    let (_kept, path) = folder(&[("rows.jsonl", "{\"text\": \"In the beginning\"}\n")]);
    let found = doctor(&path, &["--data", "rows.jsonl"]);
    assert!(found.status.success(), "{}", text(&found.stderr));
    let out = text(&found.stdout);
    assert!(
        out.contains("nothing would stop a run") && out.contains("trains every token of 1 row:"),
        "{out}"
    );
    // Losses beyond data.max_lost would stop a run, unless the user chose them.
    let cut = ["--data", "rows.jsonl", "--set", "data.max_seq_len=3"];
    let found = doctor(&path, &cut);
    assert_eq!(found.status.code(), Some(3));
    assert!(
        text(&found.stdout).contains("would be lost (data.max_lost = 0.1)"),
        "{}",
        text(&found.stdout)
    );
    let chosen = doctor(
        &path,
        &[&cut[..], &["--set", "data.too_long=truncate"]].concat(),
    );
    assert!(chosen.status.success(), "{}", text(&chosen.stderr));
}
