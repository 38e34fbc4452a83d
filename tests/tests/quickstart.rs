//! The quickstart's files: its configs are read, its rows are sound, and the clone stays small.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use espalier_trainer::config::{Config, Init, Need, Sources, resolve};
use serde_json::Value;

/// The most that the model and its text may weigh, in bytes.
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

fn texts(files: &[PathBuf]) -> Vec<String> {
    let mut texts = Vec::new();
    for file in files {
        for line in fs::read_to_string(root().join(file))
            .expect("a file")
            .lines()
        {
            let row: Value = serde_json::from_str(line).expect("a row is JSON");
            texts.push(row["text"].as_str().expect("a row has text").to_owned());
        }
    }
    texts
}

fn weight_bytes(folder: &Path) -> u64 {
    let entries = folder.read_dir().expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .map(|path| match path.is_dir() {
            true => weight_bytes(&path),
            false => path.metadata().expect("a file").len(),
        })
        .sum()
}

#[test]
fn its_config_names_what_is_there() {
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
fn its_base_is_pretrained_by_the_program_itself() {
    let pretrain = config("configs/quickstart/pretrain.toml");
    let quickstart = config("configs/quickstart.toml");
    assert_eq!(pretrain.model.init, Init::Random);
    assert!(pretrain.plugins.is_empty());
    assert_eq!(pretrain.model.path, quickstart.model.path);
    // None of the text that the quickstart learns from or is measured on.
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
fn held_out_rows_are_not_trained_on() {
    let config = config("configs/quickstart.toml");
    let train: BTreeSet<_> = texts(&config.data.files).into_iter().collect();
    let held_out = texts(&config.data.eval_files);
    assert!(train.len() > 400 && held_out.len() > 50);
    assert!(
        held_out
            .iter()
            .all(|text| !text.trim().is_empty() && !train.contains(text))
    );
}

#[test]
fn a_clone_stays_small() {
    let bytes = weight_bytes(&root().join("configs/quickstart"));
    assert!(bytes <= MOST_BYTES, "{bytes} bytes, at most {MOST_BYTES}");
}
