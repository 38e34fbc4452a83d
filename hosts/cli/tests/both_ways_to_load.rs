//! The same run in both ways to load: plugins linked into the host, and the same plugins as
//! libraries.
#![cfg(feature = "embedded")]

use espalier_torture::built;
use espalier_torture::training;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value as Json;

const PLUGINS: [&str; 19] = [
    "backend_cpu",
    "collective_threads",
    "ddp",
    "fsdp",
    "gemma2",
    "gemma3",
    "granite",
    "hqq",
    "int4",
    "llama",
    "lora",
    "mistral",
    "mxfp4",
    "nf4",
    "phi3",
    "qwen2",
    "qwen3",
    "single",
    "starcoder2",
];

/// A folder with the shipped plugins as libraries, which `cargo test --workspace` builds with the
/// host.
fn libraries(folder: &Path) -> PathBuf {
    let plugins = folder.join("plugins");
    fs::create_dir(&plugins).expect("a folder");
    for plugin in PLUGINS {
        let name = format!("libespalier_{plugin}.so");
        fs::copy(built::library(plugin), plugins.join(&name)).expect("a copy");
    }
    plugins
}

#[test]
fn linked_and_loaded_plugins_train_to_the_same_bits() {
    let folder = tempfile::tempdir().expect("a folder");
    let plugins = libraries(folder.path());
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/llama/tiny-trained");
    let rows = folder.path().join("rows.jsonl");
    let words = [
        "a time to rend",
        "and a time to sew;",
        "a time to keep silence,",
    ];
    let text: String = (0..24)
        .map(|row| {
            format!(
                "{{\"text\": \"{} {row} {}\"}}\n",
                words[row % 3],
                words[row % 2]
            )
        })
        .collect();
    fs::write(&rows, text).expect("rows");
    let cases = [
        ("f32", "nf4,lora,single,llama", "1", 5),
        ("bf16", "nf4,lora,fsdp,llama", "2", 6),
    ];
    for (compute, named, ranks, count) in cases {
        let train = |name: &str, more: &[&str]| {
            let out = folder.path().join(format!("{name}-{compute}"));
            let mut host = Command::new(env!("CARGO_BIN_EXE_host"));
            host.env("XDG_DATA_HOME", folder.path());
            host.args(["train", "--quiet", "--plugins", named, "--ranks", ranks]);
            host.arg("--model")
                .arg(&model)
                .arg("--data")
                .arg(&rows)
                .arg("--out")
                .arg(&out);
            host.args([
                "--set",
                "data.eval_split=0.25",
                "--set",
                "adapter.lora.dropout=0.1",
            ]);
            host.args(["--set", &format!("model.compute={compute}")]);
            let done = host.args(more).output().expect("the host starts");
            assert!(
                done.status.success(),
                "{}",
                String::from_utf8_lossy(&done.stderr)
            );
            let run: Json = serde_json::from_slice(&fs::read(out.join("run.json")).expect("a run"))
                .expect("JSON");
            let loaded = run["plugins"].as_array().expect("plugins").iter();
            let loaded = loaded.filter(|plugin| plugin["sha256"].is_string()).count();
            (training::trained(&out), loaded)
        };
        let (linked, none) = train("linked", &[]);
        let folder = plugins.display().to_string();
        let (loaded, all) = train("loaded", &["--plugin-dir", &folder]);
        assert_eq!((none, all), (0, count), "plugins loaded from libraries");
        assert_eq!(linked.metrics, loaded.metrics, "{compute}: metrics");
        assert!(
            linked.files == loaded.files,
            "{compute}: the adapter's bytes"
        );
    }
}
