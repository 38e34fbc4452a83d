//! Sample plugins of third parties against the peers and the shipped plugins, loaded as libraries.

use std::fs;
use std::path::{Path, PathBuf};

use espalier_config::{Sources, resolve};
use espalier_data::MicroBatch;
use espalier_engine::observer::Unobserved;
use espalier_system::stop::StopFlag;
use espalier_tests::{Golden, Rig, golden_path, micro_batch, relative_norm};
use espalier_trainer::convert::merge::{self, MergeOptions};
use serde_json::Value as Json;
use tempfile::TempDir;

/// A folder with the libraries of sample plugins.
fn folder(plugins: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for plugin in plugins {
        let library = espalier_samples::library(plugin);
        let name = library.file_name().expect("a library is a file");
        fs::copy(&library, folder.path().join(name)).expect("a copy");
    }
    folder
}

fn model() -> PathBuf {
    golden_path("llama/tiny-trained")
}

fn eval_batch() -> MicroBatch {
    let rows = Golden::open("llama/data.safetensors").rows("eval_tokens");
    micro_batch(&rows, &rows)
}

/// The model in f32 with the plugins of `folder` available.
fn rig(folder: &Path, keys: &[(&str, &str)]) -> Rig {
    let folder = format!("[{folder:?}]");
    let mut all = vec![
        ("run.plugin_dirs", folder.as_str()),
        ("model.compute", "\"f32\""),
        ("data.max_seq_len", "48"),
        ("data.micro_batch", "4"),
        ("optim.learning_rate", "2e-3"),
        ("optim.weight_decay", "0.01"),
        ("optim.clip_norm", "0.0"),
    ];
    all.extend(keys);
    Rig::new(&model(), &all)
}

#[test]
fn codes_of_three_bits_decode_to_the_weight_in_every_window() {
    let folder = folder(&["decode-only"]);
    let plugins = ("plugins", "[\"decode-only\", \"lora\"]");
    let rig = rig(folder.path(), &[plugins]);
    assert_eq!(rig.loaded.encoded, 14, "seven linears of two layers");
    let dense = Golden::open("llama/forward_tiny-trained.safetensors");
    let found = rig.logits(&eval_batch());
    // Three bits a weight lose much accuracy on a model this small, and a wrong code loses all.
    let distance = relative_norm(&found, dense.numbers("logits"));
    assert!(
        (0.01..0.6).contains(&distance),
        "logits are off by {distance}"
    );
}

/// Merges the golden adapter `ia3` into its model under `keys`.
fn merged(folder: &Path, keys: &[&str]) -> Golden {
    let place = tempfile::tempdir().expect("a folder");
    let out = place.path().join("out");
    let fixed = [
        format!("run.plugin_dirs=[{folder:?}]"),
        format!("model.path={:?}", model()),
        format!("model.adapter={:?}", golden_path("ia3/adapter")),
        format!("run.out={out:?}"),
    ];
    let keys = fixed.iter().map(String::as_str).chain(keys.iter().copied());
    let resolved = resolve(&keys.fold(Sources::default(), Sources::set)).expect("a config");
    let options = MergeOptions::default();
    merge::merge(&resolved, options, &Unobserved, &StopFlag::new()).expect("a merge");
    Golden::read(&out.join("model.safetensors"))
}

#[test]
fn a_merge_decomposes_the_fragments_ops_and_releases_its_kernels() {
    let folder = folder(&["late"]);
    let expected = merged(folder.path(), &[]);
    let report = folder.path().join("late.jsonl");
    let found = merged(
        folder.path(),
        &[
            "run.backend=\"late\"",
            "backend.late.hides=\"scale_channels\"",
            &format!("backend.late.leak_report={report:?}"),
        ],
    );
    assert!(found.names().eq(expected.names()));
    for name in expected.names() {
        // Both multiply each weight once, by the same factor, in f32.
        assert_eq!(found.numbers(name), expected.numbers(name), "{name}");
    }
    let lines = fs::read_to_string(&report).expect("a report");
    let last = lines.lines().last().expect("a line for the end");
    let last: Json = serde_json::from_str(last).expect("JSON");
    assert!(last["launches"].as_u64() > Some(0), "{last}");
    for what in ["kernels", "buffers", "freed_in_use", "races"] {
        assert_eq!(last[what], 0, "{what} in {last}");
    }
}
