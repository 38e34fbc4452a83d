//! The config's layers, errors and rules, through the trainer's public interface.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use espalier_config::{
    ComputeType, ConfigError, LearningRateSchedule, Need, Origin, ResolvedConfig, Sources, resolve,
};
use espalier_system::failure::Failure;
use espalier_trainer::checkpoint::earlier_values;
use serde_json::{Value as Json, json};

fn sets(assignments: &[&str]) -> Sources {
    let none = Sources::default();
    assignments
        .iter()
        .fold(none, |sources, text| sources.set(*text))
}

fn resolved(assignments: &[&str]) -> ResolvedConfig {
    resolve(&sets(assignments)).unwrap_or_else(|error| panic!("{assignments:?}: {error}"))
}

fn refused(assignments: &[&str]) -> String {
    match resolve(&sets(assignments)) {
        Ok(_) => panic!("{assignments:?} passed"),
        Err(error) => error.to_string(),
    }
}

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("config.toml");
    fs::write(&path, text).expect("written");
    (dir, path)
}

#[test]
fn every_section_of_the_contract_is_read() {
    let (_dir, path) = file(
        r#"
        plugins = ["nf4", "lora"]
        [run]
        seed = 7
        epochs = 2
        max_steps = 0
        save_every = 10
        keep_last = 1
        eval_every = 5
        [model]
        path = "models/tiny"
        init = "random"
        compute = "f64"
        params = "bf16"
        keep_f32 = ["*.norm"]
        recompute = "layer"
        [data]
        files = ["a.jsonl"]
        eval_split = 0.1
        fields = { text = "body" }
        max_seq_len = 16
        too_long = "drop"
        batch_size = 6
        micro_batch = 4
        pack_tokens = 64
        train_on = "all"
        shuffle = false
        [optim]
        learning_rate = 1
        betas = [0.5, 0]
        schedule = "cosine"
        warmup_ratio = 0.5
        [quantizer.nf4]
        block_size = 64
        double_quant = true
        [quantizer.hqq]
        profile = "0.2.8"
        [[sites]]
        match = "*.down_proj"
        quantizer = "none"
        [[sites]]
        match = "*.up_proj"
        options = { block_size = 32 }
        [sharding.single]
        [backend.cpu]
        [collective.threads]
        "#,
    );
    let resolved = resolve(&Sources::default().file(&path)).expect("valid");
    let config = resolved.config();
    assert_eq!(config.plugins, ["nf4", "lora"]);
    assert_eq!(config.run.max_steps, Some(0));
    assert_eq!(config.model.compute, ComputeType::F64);
    assert_eq!(config.micro_batches(), 2);
    assert_eq!(config.optim.learning_rate, 1.0);
    assert_eq!(config.optim.betas, [0.5, 0.0]);
    assert_eq!(config.optim.schedule, LearningRateSchedule::Cosine);
    assert_eq!(config.optim.warmup(5), 3);
    let nf4 = config.section("quantizer", "nf4").expect("given");
    assert_eq!(nf4["block_size"], json!(64));
    assert_eq!(config.sites[0].quantizer.as_deref(), Some("none"));
    assert_eq!(config.sites[1].options["block_size"], json!(32));
    assert_eq!(resolved.origin("run.seed"), Origin::File(path.clone(), 4));
    assert_eq!(
        resolved.origin("quantizer.nf4.block_size").to_string(),
        format!("{}:34", path.display())
    );
}

#[test]
fn a_later_layer_wins_key_by_key_and_list_by_list() {
    let (_dir, path) = file("plugins = [\"nf4\"]\n[quantizer.nf4]\nblock_size = 64\nx = 1\n");
    let sources = Sources::default()
        .flag("--model", "model.path", "flag")
        .set("plugins=int8, lora,int8")
        .set("quantizer.nf4.block_size=128")
        .set("model.path=set")
        .environment([
            ("HOST__MODEL__PATH".to_owned(), "environment".to_owned()),
            ("HOST__DATA__FILES".to_owned(), "a,b.jsonl".to_owned()),
            ("HOST_PLUGIN_PATH".to_owned(), "ignored".to_owned()),
        ])
        .file(path);
    let resolved = resolve(&sources).expect("valid");
    let config = resolved.config();
    assert_eq!(config.plugins, ["int8", "lora"]);
    assert_eq!(config.model.path, Some("flag".into()));
    assert_eq!(config.data.files, [PathBuf::from("a,b.jsonl")]);
    let nf4 = config.section("quantizer", "nf4").expect("given");
    assert_eq!((&nf4["block_size"], &nf4["x"]), (&json!(128), &json!(1)));
    let origin = |key: &str| resolved.origin(key);
    assert_eq!(origin("model.path"), Origin::Flag("--model".into()));
    assert_eq!(origin("plugins"), Origin::Set("plugins".into()));
    assert_eq!(
        origin("data.files"),
        Origin::Environment("HOST__DATA__FILES".into())
    );
    assert_eq!(
        origin("quantizer.nf4.block_size"),
        Origin::Set("quantizer.nf4.block_size".into())
    );
    assert_eq!(origin("optim.eps"), Origin::Default);
}

#[test]
fn unknown_keys_name_their_section_and_the_nearest_key() {
    let cases = [
        ("run.sede=1", "[run]", Some("seed")),
        ("data.pack_token=64", "[data]", Some("pack_tokens")),
        ("run.batch_size=1", "[run]", Some("data.batch_size")),
        ("quantiser.nf4.x=1", "the top level", Some("quantizer")),
        ("model.zzzzzz=1", "[model]", None),
        (
            "sites=[{match = \"*\", quantiser = \"none\"}]",
            "[sites.0]",
            Some("quantizer"),
        ),
    ];
    for (assignment, section_expected, nearest_expected) in cases {
        match resolve(&sets(&[assignment])) {
            Err(ConfigError::UnknownKey {
                section,
                nearest,
                known,
                ..
            }) => {
                assert_eq!(section, section_expected, "{assignment}");
                assert_eq!(nearest.as_deref(), nearest_expected, "{assignment}");
                assert!(!known.is_empty(), "{assignment}");
            }
            other => panic!("{assignment}: {other:?}"),
        }
    }
}

#[test]
fn wrong_types_name_key_expected_found_and_origin() {
    let cases: [(&str, [&str; 3]); 15] = [
        ("run.seed=1.5", ["`run.seed`", "a whole number", "1.5"]),
        ("run.seed=-1", ["`run.seed`", "0 or more", "-1"]),
        (
            "run.max_steps=many",
            ["`run.max_steps`", "a whole number", "\"many\""],
        ),
        (
            "data.shuffle=1",
            ["`data.shuffle`", "true or false", "found 1"],
        ),
        ("data.files=3", ["`data.files`", "a list", "found 3"]),
        ("data.files=[3]", ["`data.files.0`", "", "found 3"]),
        (
            "optim.betas=[0.9]",
            ["`optim.betas`", "2 numbers", "1 value"],
        ),
        (
            "optim.betas=[0.9, 0.99, 0.999]",
            ["`optim.betas`", "2 numbers", "3 values"],
        ),
        (
            "model.compute=bf15",
            ["`model.compute`", "nearest: `bf16`", "`bf15`"],
        ),
        (
            "model.compute=1",
            ["`model.compute`", "a string", "found 1"],
        ),
        ("model=3", ["`model`", "a table", "found 3"]),
        (
            "quantizer=nf4",
            ["`quantizer`", "[quantizer.NAME]", "\"nf4\""],
        ),
        (
            "quantizer.block_size=64",
            ["`quantizer.block_size`", "[quantizer.NAME]", "64"],
        ),
        (
            "sites=[{quantizer = \"none\"}]",
            ["`sites.0.match`", "a pattern", "nothing"],
        ),
        ("optim.eps=nan", ["optim.eps", "a finite number", "NaN"]),
    ];
    for (assignment, parts) in cases {
        let error = refused(&[assignment]);
        for part in parts.into_iter().chain(["--set"]) {
            assert!(error.contains(part), "{assignment}: no {part:?} in {error}");
        }
    }
}

#[test]
fn values_out_of_range_are_refused() {
    for assignment in [
        "run.epochs=0",
        "run.keep_last=0",
        "run.save_every=0",
        "run.eval_every=0",
        "run.eval_every=5",
        "run.threads=0",
        "run.threads=1025",
        "run.ranks=0",
        "run.ranks=1025",
        "run.peer_timeout_secs=0",
        "run.join_timeout_secs=0",
        "data.max_seq_len=1",
        "data.batch_size=0",
        "data.micro_batch=0",
        "data.micro_batch=9",
        "data.pack_tokens=0",
        "data.eval_split=0.0",
        "data.eval_split=1.5",
        "optim.name=lion",
        "optim.learning_rate=0",
        "optim.learning_rate=-1e-3",
        "optim.betas=[0.9, 1.0]",
        "optim.betas=[-0.1, 0.9]",
        "optim.eps=0",
        "optim.weight_decay=-1",
        "optim.clip_norm=-1",
        "optim.floor=1.1",
        "optim.warmup_ratio=1.1",
    ] {
        let key = assignment.split('=').next().expect("a key");
        let error = refused(&[assignment]);
        assert!(error.contains(key), "{assignment}: {error}");
        assert!(error.contains("--set"), "{assignment}: {error}");
    }
}

#[test]
fn conflicts_name_both_keys_and_where_each_was_written() {
    let (_dir, path) = file("[optim]\nwarmup_steps = 10\n");
    let sources = Sources::default().file(&path).set("optim.warmup_ratio=0.1");
    let error = resolve(&sources).expect_err("both are given").to_string();
    for part in [
        "`optim.warmup_steps`",
        "config.toml:2",
        "`optim.warmup_ratio`",
        "--set",
    ] {
        assert!(error.contains(part), "no {part:?} in {error}");
    }
    resolved(&["optim.warmup_ratio=0.1"]);
    let unclipped = "optim.clip_norm=0.0";
    let clipped = refused(&["optim.in_backward=true"]);
    for part in [
        "`optim.in_backward`",
        "`optim.clip_norm`",
        "set optim.clip_norm = 0",
    ] {
        assert!(clipped.contains(part), "no {part:?} in {clipped}");
    }
    resolved(&["optim.in_backward=true", unclipped]);
    refused(&["data.eval_split=0.5", "data.eval_files=[\"x\"]"]);
    resolved(&["data.eval_split=0.5", "run.eval_every=2"]);
    resolved(&["data.batch_size=10", "data.micro_batch=4"]);
    resolved(&[
        "data.batch_size=2",
        "data.micro_batch=4",
        "data.pack_tokens=64",
    ]);
    let renamed = refused(&["data.fields.txt=body"]);
    assert!(
        renamed.contains("[data.fields]") && renamed.contains("`text`"),
        "{renamed}"
    );
}

#[test]
fn a_missing_value_names_its_flag() {
    let config = resolved(&["model.path=m"]);
    assert!(config.require(&[Need::Model]).is_ok());
    let error = config
        .require(&[Need::Model, Need::Data])
        .expect_err("no data");
    assert!(
        error.next_step().contains("--data FILE"),
        "{}",
        error.next_step()
    );
}

#[test]
fn the_printed_config_is_read_back_unchanged() {
    let first = resolved(&[
        "plugins=nf4,lora",
        "adapter.lora={\"odd key\" = 1, targets = [\"q_proj\", \"v_proj\"]}",
        "data.fields.text='a \"quoted\" name'",
        "optim.eps=1e-30",
        "run.max_steps=3",
        "sites=[{match = \"*\", quantizer = \"none\"}]",
    ]);
    let (_dir, path) = file(&first.to_toml());
    let second = resolve(&Sources::default().file(&path)).expect("its own output");
    assert_eq!(first.config(), second.config());
}

/// Every key of a config written as TOML, with its written value, including unset ones.
fn keys_of(toml: &str) -> BTreeMap<String, Option<String>> {
    let mut section = String::new();
    let mut keys = BTreeMap::new();
    for line in toml.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            section = format!("{name}.");
        } else if let Some(key) = line.strip_prefix("# ") {
            let key = key.strip_suffix(" is unset").expect("an unset key");
            keys.insert(format!("{section}{key}"), None);
        } else {
            let (key, value) = line.split_once(" = ").expect("key = value");
            let value = value.strip_suffix("# default").unwrap_or(value).trim();
            keys.insert(format!("{section}{key}"), Some(value.to_owned()));
        }
    }
    keys
}

#[test]
fn a_key_added_or_changed_since_version_1_has_a_value_for_older_runs() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/config/version-1.toml");
    let first = keys_of(&fs::read_to_string(golden).expect("the first version's defaults"));
    let now = keys_of(&resolved(&[]).to_toml());
    assert!(first.len() > 50, "{first:?}");
    let rows = earlier_values(1);
    for (key, value) in &now {
        let row = rows.get(key.as_str()).map(|value| match value {
            Json::Null => None,
            value => Some(value.to_string()),
        });
        match first.get(key) {
            None => assert!(
                row.is_some(),
                "`{key}` is new: a row in checkpoint/earlier_values.rs says its value in older runs"
            ),
            Some(before) if before != value => assert_eq!(
                row.as_ref(),
                Some(before),
                "`{key}` has another default: a row in checkpoint/earlier_values.rs has the old one"
            ),
            Some(_) => {}
        }
    }
    for key in first.keys() {
        assert!(now.contains_key(key), "`{key}` is gone: older runs have it");
    }
}
