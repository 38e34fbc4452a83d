//! The quickstart's files: its configs are read, its questions are valid, and the clone stays
//! small.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use espalier_config::{Config, Init, Need, Sources, resolve};
use espalier_samples::{Facility, lacks};
use serde_json::Value;

/// The size limit of the model and its text, in bytes.
const MOST_BYTES: u64 = 12 << 20;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn config(name: &str) -> Config {
    let resolved = resolve(&Sources::default().file(root().join(name))).expect(name);
    let needs = [Need::Model, Need::Data, Need::Out];
    resolved.require(&needs).expect(name);
    resolved.config().clone()
}

fn rows(files: &[PathBuf]) -> Vec<Value> {
    let contents = files
        .iter()
        .map(|file| fs::read_to_string(root().join(file)));
    contents
        .flat_map(|text| {
            let text = text.expect("a file");
            let rows = text.lines().map(serde_json::from_str);
            rows.map(|row| row.expect("a row is JSON"))
                .collect::<Vec<Value>>()
        })
        .collect()
}

fn text<'a>(row: &'a Value, field: &str) -> &'a str {
    row[field]
        .as_str()
        .unwrap_or_else(|| panic!("a row has a {field}"))
}

/// The sentence that a question is about.
fn sentence(row: &Value) -> &str {
    let lines = text(row, "prompt").split_once('\n');
    lines.expect("a sentence, then the question").0
}

fn weight_bytes(folder: &Path) -> u64 {
    let entries = folder.read_dir().expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .map(|path| {
            if path.is_dir() {
                weight_bytes(&path)
            } else {
                path.metadata().expect("a file").len()
            }
        })
        .sum()
}

#[test]
fn the_config_names_existing_files() {
    let config = config("configs/quickstart.toml");
    assert_eq!(config.plugins, ["nf4", "lora"]);
    let model = root().join(config.model.path.expect("a model"));
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        assert!(model.join(name).is_file(), "{name}");
    }
    assert!(
        config.run.eval_every.is_some(),
        "the held-out loss is printed"
    );
}

#[test]
fn the_base_is_pretrained_by_this_program() {
    let pretrain = config("configs/quickstart/pretrain.toml");
    let quickstart = config("configs/quickstart.toml");
    assert_eq!(pretrain.model.init, Init::Random);
    assert!(pretrain.plugins.is_empty());
    assert_eq!(pretrain.model.path, quickstart.model.path);
    // No text that the quickstart trains or evaluates on.
    let seen: Vec<_> = pretrain
        .data
        .files
        .iter()
        .chain(&pretrain.data.eval_files)
        .collect();
    let new: Vec<_> = quickstart
        .data
        .files
        .iter()
        .chain(&quickstart.data.eval_files)
        .collect();
    assert!(new.iter().all(|file| !seen.contains(file)));
}

#[test]
fn no_held_out_question_is_in_the_training_data() {
    let config = config("configs/quickstart.toml");
    let trained = rows(&config.data.files);
    let held_out = rows(&config.data.eval_files);
    assert!(trained.len() > 5000 && held_out.len() > 250);
    let novel = rows(&[PathBuf::from("configs/quickstart/data/train.jsonl")]);
    let prompts = trained.iter().map(|row| text(row, "prompt"));
    let seen: Vec<_> = prompts
        .chain(novel.iter().map(|row| text(row, "text")))
        .collect();
    for row in &held_out {
        let sentence = sentence(row).trim_end_matches(['.', ':', ';', '?', '!', ',']);
        assert!(
            !seen.iter().any(|text| text.contains(sentence)),
            "{sentence}"
        );
    }
}

#[test]
fn no_constant_answer_scores_more_than_half() {
    let config = config("configs/quickstart.toml");
    let mut trained: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in rows(&config.data.files) {
        let answers = trained.entry(text(&row, "kind").to_owned()).or_default();
        answers.insert(text(&row, "completion").to_owned());
    }
    let mut held_out: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for row in rows(&config.data.eval_files) {
        let (kind, answer) = (text(&row, "kind"), text(&row, "completion"));
        assert!(trained[kind].contains(answer), "{kind} {answer}");
        let counts = held_out.entry(kind.to_owned()).or_default();
        *counts.entry(answer.to_owned()).or_default() += 1;
    }
    assert!(held_out.keys().eq(trained.keys()) && held_out.len() == 6);
    for (kind, counts) in &held_out {
        let total: usize = counts.values().sum();
        let most = counts.values().max().expect("an answer");
        assert!(most * 2 <= total, "{kind}: {counts:?}");
    }
}

#[test]
fn questions_follow_from_the_texts() {
    let out = tempfile::tempdir().expect("a folder");
    let script = root().join("configs/quickstart/questions.py");
    let mut python = Command::new("python3");
    let made = python.arg(script).arg("--out").arg(out.path()).output();
    let made = match made {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return lacks(Facility::Python, "there is no `python3`");
        }
        made => made.expect("python3 runs"),
    };
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    for name in ["questions.jsonl", "held-out-questions.jsonl"] {
        let committed = fs::read(root().join("configs/quickstart/data").join(name));
        let made = fs::read(out.path().join(name)).expect("a file");
        assert!(made == committed.expect("a file"), "{name} differs");
    }
}

#[test]
fn without_python_the_test_fails_or_reports_that_it_was_skipped() {
    let test = "questions_follow_from_the_texts";
    espalier_samples::assert_reports_skip(test, Facility::Python);
}

#[test]
fn a_clone_stays_small() {
    let bytes = weight_bytes(&root().join("configs/quickstart"));
    assert!(bytes <= MOST_BYTES, "{bytes} bytes, at most {MOST_BYTES}");
}
