//! `host import`: configs as axolotl publishes them are taken over, and train a tiny model.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use espalier_torture::built::program;
use serde_json::json;

/// Those that are taken over, and what is listed as without a counterpart.
const CONFIGS: [(&str, &[&str]); 12] = [
    ("llama-2-lora", &["evals_per_epoch", "saves_per_epoch"]),
    ("llama-2-qlora", &["evals_per_epoch", "saves_per_epoch"]),
    ("llama-2-fft", &["evals_per_epoch", "saves_per_epoch"]),
    (
        "llama-2-qlora-fsdp",
        &["evals_per_epoch", "saves_per_epoch"],
    ),
    (
        "llama-2-loftq",
        &["peft", "evals_per_epoch", "saves_per_epoch"],
    ),
    (
        "llama-3-lora-8b",
        &["evals_per_epoch", "saves_per_epoch", "special_tokens"],
    ),
    (
        "llama-3-instruct-lora-8b",
        &["evals_per_epoch", "saves_per_epoch", "special_tokens"],
    ),
    (
        "llama-3-qlora",
        &["evals_per_epoch", "saves_per_epoch", "special_tokens"],
    ),
    (
        "llama-3-fft-8b",
        &["evals_per_epoch", "saves_per_epoch", "special_tokens"],
    ),
    (
        "llama-3-lora-1b",
        &[
            "evals_per_epoch",
            "saves_per_epoch",
            "loss_watchdog_threshold",
            "loss_watchdog_patience",
            "special_tokens",
        ],
    ),
    (
        "mistral-qlora",
        &[
            "evals_per_epoch",
            "saves_per_epoch",
            "loss_watchdog_threshold",
            "loss_watchdog_patience",
        ],
    ),
    ("qwen2-qlora-fsdp", &["evals_per_epoch", "saves_per_epoch"]),
];

/// The file of a config.
fn file(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/axolotl");
    folder.join(format!("{name}.yml"))
}

fn run(words: &[&str]) -> Output {
    let output = Command::new(program()).args(words).output();
    output.expect("the host starts")
}

/// Rows of alpaca, and of turns.
fn make_rows(folder: &Path) -> [PathBuf; 2] {
    let alpaca = |row: u32| json!({"instruction": format!("Count to {row}."), "output": "one"});
    let turns = |row: u32| {
        let ask = json!({"role": "user", "content": format!("Count to {row}.")});
        let say = json!({"role": "assistant", "content": "one"});
        json!({"messages": [ask, say]})
    };
    let write = |name: &str, row: &dyn Fn(u32) -> serde_json::Value| {
        let rows: Vec<String> = (1..=40).map(|at| row(at).to_string()).collect();
        let path = folder.join(name);
        fs::write(&path, rows.join("\n")).expect("written");
        path
    };
    [write("alpaca.jsonl", &alpaca), write("turns.jsonl", &turns)]
}

/// The keys that are said to have no counterpart.
fn lacking(output: &Output) -> Vec<String> {
    let said = String::from_utf8_lossy(&output.stderr);
    let lines = said.lines();
    let keys = lines.filter_map(|line| line.strip_prefix("no counterpart: ")?.split(':').next());
    keys.map(str::to_owned).collect()
}

#[test]
fn twelve_published_configs_are_taken_over_and_train() {
    let folder = tempfile::tempdir().expect("a folder");
    let [alpaca, turns] = make_rows(folder.path());
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/llama/tiny");
    for (name, lacks) in CONFIGS {
        let out = folder.path().join(format!("{name}.toml"));
        let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        let (from, to) = (text(&file(name)), text(&out));
        let output = run(&["import", &from, "--out", &to]);
        assert_eq!(output.status.code(), Some(0), "{name}: {output:?}");
        assert_eq!(lacking(&output), *lacks, "{name}");
        let rows = if name.contains("instruct") {
            &turns
        } else {
            &alpaca
        };
        let run_folder = text(&folder.path().join(name));
        let (model, rows) = (text(&model), text(rows));
        let output = run(&[
            "train",
            "--quiet",
            "--config",
            &to,
            "--model",
            &model,
            "--data",
            &rows,
            "--out",
            &run_folder,
            "--ranks",
            "1",
            "--set",
            "run.max_steps=2",
            "--set",
            "data.max_seq_len=256",
        ]);
        assert_eq!(output.status.code(), Some(0), "{name}: {output:?}");
        let metrics = fs::read_to_string(folder.path().join(name).join("metrics.jsonl"));
        let metrics = metrics.expect("metrics");
        let steps = metrics
            .lines()
            .filter(|line| line.contains("\"step_secs\""));
        assert_eq!(steps.count(), 2, "{name}");
    }
}

#[test]
fn a_config_of_another_kind_of_model_is_refused() {
    let from = file("qwen2-vl-lora");
    let output = run(&["import", from.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("`processor_type` asks for a model of images and text"),
        "{said}"
    );
    assert!(output.stdout.is_empty(), "{output:?}");
}

#[test]
fn a_file_that_is_there_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = folder.path().join("mine.toml");
    fs::write(&kept, "mine").expect("written");
    let from = file("llama-2-qlora");
    let words = ["import", from.to_str().expect("UTF-8"), "--out"];
    let words = [&words[..], &[kept.to_str().expect("UTF-8")]].concat();
    let output = run(&words);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(fs::read_to_string(&kept).expect("kept"), "mine");
}
