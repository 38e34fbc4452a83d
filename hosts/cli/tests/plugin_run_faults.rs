//! Plugins that fail during a run, in every callback and in every way. The run ends with the
//! plugin's exit code, and its checkpoints are whole. The last line names component, file and
//! callback.
#![cfg(feature = "embedded")]

mod faulty_run;
use espalier_torture::built;
use espalier_torture::training;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use faulty_run::{Case, Faulty};
use training::{files, last_line};

const QUANTIZER: &str = "faulty-quantizer,lora";
const DESCRIBED: &str = "faulty-quantizer,lora --set quantizer.faulty-quantizer.described=true";
const BACKEND: &str = "faulty-backend,lora";

#[test]
fn panics_errors_and_invalid_text_are_reported_for_every_callback() {
    let faulty = Faulty::new();
    let callbacks = [
        (QUANTIZER, "create"),
        (QUANTIZER, "format"),
        (QUANTIZER, "encode_workspace"),
        (QUANTIZER, "encode"),
        (QUANTIZER, "decode"),
        ("faulty-adapter", "adapt"),
        ("faulty-adapter", "saved_config"),
        ("faulty-sharding,lora", "schedule"),
        (BACKEND, "devices"),
        (BACKEND, "open"),
        (BACKEND, "prepare"),
        (BACKEND, "alloc"),
        (BACKEND, "upload"),
        (BACKEND, "launch"),
        (BACKEND, "download"),
    ];
    for (plugins, callback) in callbacks {
        for (kind, words) in [
            ("panic", "panicked: CALLBACK was told to panic | report it"),
            ("error", "CALLBACK was told to fail | report it"),
            (
                "bytes",
                "`no \\xff\\xfe text of CALLBACK` | is damaged or was built wrongly | report it",
            ),
            (
                "zeros",
                "`\\x02\\x00CALLBACK\\x00` | is damaged or was built wrongly | report it",
            ),
        ] {
            faulty.refuses(&Case {
                plugins,
                callback,
                kind,
                words: &words.replace("CALLBACK", callback),
            });
        }
    }
}

#[test]
fn a_failure_during_training_keeps_the_checkpoint_and_names_the_plugin() {
    let faulty = Faulty::new();
    let resumes_after = |plugins, callback, kind, words, more: &str| {
        let case = Case {
            plugins,
            callback,
            kind,
            words,
        };
        faulty.resumes_after(&case, more);
    };
    // Decoding runs on the host's threads, inside a launch of the backend: neither is at fault.
    resumes_after(QUANTIZER, "decode", "panic", "decode was told to panic", "");
    resumes_after(
        QUANTIZER,
        "decode",
        "error",
        "param `model.layers. | told to fail",
        "",
    );
    resumes_after(QUANTIZER, "decode", "nan", "is NaN", "");
    resumes_after(QUANTIZER, "decode", "silent", "was not written", "");
    resumes_after(BACKEND, "launch", "panic", "launch was told to panic", "");
    resumes_after(BACKEND, "upload", "error", "upload was told to fail", "");
    resumes_after(BACKEND, "download", "bytes", "text of download", "");
    resumes_after(
        "faulty-adapter",
        "saved_config",
        "panic",
        "told to panic",
        "",
    );
}

/// Invalid values from a plugin: its plugins, callback and kind of fault, and the words of the last
/// line.
const INVALID_VALUES: [(&str, &str, &str, &str); 31] = [
    (
        QUANTIZER,
        "format",
        "shape",
        "of shape [65, 64], expected [64, 64]",
    ),
    (
        DESCRIBED,
        "format",
        "short",
        "`scale` holds 1 f32, expected at least 64",
    ),
    (DESCRIBED, "format", "absent", "segment 1 does not exist"),
    (QUANTIZER, "format", "overflow", "expected at most"),
    (QUANTIZER, "format", "absurd", "expected at most"),
    (
        QUANTIZER,
        "encode_workspace",
        "huge",
        "18446744073709551615 bytes of workspace",
    ),
    (
        DESCRIBED,
        "encode",
        "nan",
        "scale of block 0 is NaN | param `model.layers.0",
    ),
    (
        QUANTIZER,
        "decode",
        "nan",
        "element [0, 0] is NaN | param `model.layers.0",
    ),
    (
        QUANTIZER,
        "decode",
        "silent",
        "element [0, 0] | was not written",
    ),
    (
        QUANTIZER,
        "format",
        "reply=no JSON",
        "plugin boundary cannot be read",
    ),
    (QUANTIZER, "format", "reply={}", "missing field"),
    ("faulty-adapter", "adapt", "site", "joins site 999"),
    (
        "faulty-adapter",
        "adapt",
        "twice",
        "two fragments join site",
    ),
    ("faulty-adapter", "adapt", "param", "binds param 999 of 2"),
    (
        "faulty-adapter",
        "adapt",
        "unbound",
        "reads 1 params and binds 0",
    ),
    ("faulty-adapter", "adapt", "idle", "no fragment reads param"),
    (
        "faulty-adapter",
        "adapt",
        "absurd",
        "more than can be addressed",
    ),
    ("faulty-adapter", "adapt", "name", "two params are called"),
    (
        "faulty-adapter",
        "adapt",
        "width",
        "op `add`: output `y` is compute [T, 7], expected compute [T, 64]",
    ),
    (
        "faulty-adapter",
        "adapt",
        "shape",
        "graph `faulty`: node 1: op `linear`: output `y` is compute [T, 64], expected compute [T, \
         65]",
    ),
    (
        "faulty-adapter",
        "adapt",
        "operands",
        "node 2: op `add`: 1 inputs",
    ),
    (
        "faulty-adapter",
        "adapt",
        "value",
        "larger than can be addressed",
    ),
    ("faulty-adapter", "adapt", "reply=[]", "cannot be read"),
    (
        "faulty-adapter",
        "saved_config",
        "reply=7",
        "expected an object, found 7",
    ),
    (
        "faulty-sharding,lora",
        "schedule",
        "unit",
        "there are 4 units",
    ),
    (
        "faulty-sharding,lora",
        "schedule",
        "update",
        "update action",
    ),
    (
        "faulty-sharding,lora",
        "schedule",
        "placements",
        "3 placements for 4 units",
    ),
    (
        "faulty-sharding,lora",
        "schedule",
        "later",
        "waits for action 5",
    ),
    ("faulty-sharding,lora", "schedule", "order", "forward order"),
    (BACKEND, "prepare", "huge", "bytes of workspace"),
    (BACKEND, "devices", "reply=[1]", "cannot be read"),
];

#[test]
fn invalid_values_are_refused_before_anything_is_allocated() {
    let faulty = Faulty::new();
    for (plugins, callback, kind, words) in INVALID_VALUES {
        faulty.refuses(&Case {
            plugins,
            callback,
            kind,
            words,
        });
    }
}

#[test]
fn a_family_must_match_its_description() {
    let faulty = Faulty::new();
    let model = faulty.training.path("model");
    training::copy(&golden("tiny"), &model);
    let config = fs::read_to_string(model.join("config.json")).expect("a config");
    let config = config.replace("\"model_type\": \"llama\"", "\"model_type\": \"faulty\"");
    fs::write(model.join("config.json"), config).expect("written");
    let plugins = format!("faulty-family --set model.path=\"{}\"", model.display());
    let cases = [
        ("panic", "describe was told to panic"),
        ("error", "describe was told to fail"),
        ("bytes", "text of describe"),
        ("overflow", "more than can be addressed"),
        (
            "vector",
            "op `linear`: param `weight` is [512], expected a matrix",
        ),
        ("param", "binds param 9"),
        ("graph", "names graph 9"),
        ("units", "an embedding and a head at least"),
        ("operands", "node 1: op `cross_entropy`: 1 inputs"),
        ("outputs", "node 0: op `linear` makes no value"),
        ("loss", "no output `loss`"),
        ("value", "larger than can be addressed"),
        ("reply=null", "cannot be read"),
    ];
    for (kind, words) in cases {
        faulty.refuses(&Case {
            plugins: &plugins,
            callback: "describe",
            kind,
            words,
        });
    }
    // Without a fault the model trains.
    let output = faulty.run(
        "sound",
        &format!("--plugins {plugins} --set run.max_steps=1"),
        "",
    );
    assert!(output.status.success(), "{}", last_line(&output));
    assert!(!files(&faulty.training.path("sound/model")).is_empty());
}

fn golden(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
    tests.join("golden/llama").join(name)
}

#[test]
fn faults_in_a_quantizers_saved_form_name_the_quantizer() {
    let faulty = Faulty::new();
    let folder = faulty.training.folder.path();
    let llama = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/llama");
    let host = |words: &str, fault: &str| {
        let _ = fs::remove_dir_all(faulty.training.path("data"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_host"));
        command.current_dir(folder).args(words.split_whitespace());
        command.env("XDG_DATA_HOME", faulty.training.path("data"));
        command.env("FAULTY_RUN", fault).env("RUST_BACKTRACE", "0");
        command.env("FAULTY_RUN_CPU", built::library("backend_cpu"));
        command.output().expect("the host starts")
    };
    let quantize = format!(
        "quantize --plugin-dir plugins --plugins faulty-quantizer --out packed --model {} \
         --set quantizer.faulty-quantizer.described=true",
        llama.join("tiny").display()
    );
    let names_plugin = |words: &str, callback: &str| {
        for kind in ["panic", "error", "bytes"] {
            let case = Case {
                plugins: "faulty-quantizer",
                callback,
                kind,
                words: "",
            };
            faulty.names_plugin(&host(words, &format!("{callback}:{kind}")), &case);
        }
    };
    names_plugin(&quantize, "saved_form");
    names_plugin(&quantize, "quantization_config");
    assert!(!faulty.training.path("packed").exists());
    let packed = host(&quantize, "none:none");
    assert!(packed.status.success(), "{}", last_line(&packed));
    let evaluate = "eval --plugin-dir plugins --model packed --data rows.jsonl --quiet";
    names_plugin(evaluate, "options_from_saved");
}
