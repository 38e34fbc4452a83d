//! Broken, false or mismatched input -> exit code, last line and remaining files.

mod place;

use std::fs;
use std::process::Command;

use serde_json::{Value as Json, json};

use place::{RunFolder, Weights, contents, copy_directory};

/// The weight that the cases damage, `[176, 64]`.
const WEIGHT: &str = "model.layers.1.mlp.up_proj.weight";
/// An adapter's tensor that the cases damage, `[8, 64]`.
const LORA: &str = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
/// NaN as a safetensors file holds it.
const NAN: [u8; 4] = f32::NAN.to_le_bytes();

#[test]
fn a_damaged_weight_file_is_named_and_leaves_the_output_free() {
    type Damage = fn(&mut Weights);
    let length: Damage = |w| w.0[..8].copy_from_slice(&90_000_000u64.to_le_bytes());
    let offset: Damage = |w| w.header(|h| h[WEIGHT]["data_offsets"][1] = json!(1u64 << 40));
    let long: Damage = |w| w.header(|h| h[WEIGHT]["shape"] = json!([352, 64]));
    let turned: Damage = |w| w.header(|h| h[WEIGHT]["shape"] = json!([64, 176]));
    let whole_numbers: Damage = |w| w.header(|h| h[WEIGHT]["dtype"] = json!("I32"));
    let nan: Damage = |w| w.data(WEIGHT)[8..12].copy_from_slice(&NAN);
    let cases: [(&str, Damage, &str); 9] = [
        ("empty", |w| w.0.clear(), "is not a safetensors file"),
        (
            "cut",
            |w| w.0.truncate(300_000),
            "describes 632064 bytes of data, the file holds",
        ),
        ("header", length, "is truncated | 90000000 bytes"),
        (
            "offset",
            offset,
            "up_proj.weight` of shape [176, 64] and dtype F32 needs 45056 bytes",
        ),
        (
            "long",
            long,
            "up_proj.weight` of | needs 90112 bytes, its byte range has 45056",
        ),
        (
            "missing",
            |w| w.rename(WEIGHT, "stray"),
            "has no tensor `model.layers.1.mlp.up_proj.weight`",
        ),
        (
            "shape",
            turned,
            "layers.1.mlp.up_proj.weight` has shape [64, 176], expected [176, 64]",
        ),
        (
            "dtype",
            whole_numbers,
            "layers.1.mlp.up_proj.weight` is I32; expected F32",
        ),
        (
            "nan",
            nan,
            "layers.1.mlp.up_proj.weight`: element 2 is not a finite number",
        ),
    ];
    let place = RunFolder::new();
    for (case, damage, words) in cases {
        place.model(case);
        Weights::edit(&place.path(case).join("model.safetensors"), damage);
        let outcome = place.train(case, "--plugins nf4,lora --out out");
        outcome.refused(case, 4, &format!("{case}/model.safetensors | {words}"));
        assert_eq!(place.names("out"), "", "{case}");
    }
    // The same output directory takes the run once the checkpoint is whole.
    place.model("whole");
    place.train("whole", "--plugins lora --out out").succeeded();
    let left =
        "adapter checkpoints log.txt metrics.jsonl report.html report.json run.json tensorboard";
    assert_eq!(place.names("out"), left);
}

#[test]
fn an_index_cannot_name_files_elsewhere() {
    let cases = [
        (
            "../outside.safetensors",
            "is said to be in \"../outside.safetensors\" | plain name",
        ),
        (
            "/etc/passwd",
            "is said to be in \"/etc/passwd\" | plain name",
        ),
        (
            "link.safetensors",
            "link.safetensors is a link to | outside its directory",
        ),
        ("gone.safetensors", "lacks the shard `gone.safetensors`"),
    ];
    let place = RunFolder::new();
    place.model("model");
    let model = place.path("model");
    fs::rename(
        model.join("model.safetensors"),
        place.path("outside.safetensors"),
    )
    .expect("moved");
    let link = model.join("link.safetensors");
    std::os::unix::fs::symlink("../outside.safetensors", link).expect("linked");
    for (shard, words) in cases {
        let index = json!({"metadata": {}, "weight_map": {"lm_head.weight": shard}});
        place.write("model/model.safetensors.index.json", &index.to_string());
        let outcome = place.train("model", "--plugins lora --out out");
        outcome.refused(shard, 4, words);
        assert_eq!(place.names("out"), "", "{shard}");
    }
}

#[test]
fn an_invalid_model_config_is_reported_as_a_checkpoint_error() {
    let cases = [
        ("hidden_size", json!(-1), "config.json | `hidden_size`"),
        (
            "vocab_size",
            json!(1u64 << 62),
            "config.json | `vocab_size`",
        ),
        (
            "num_attention_heads",
            json!(3),
            "config.json | `num_attention_heads` 3",
        ),
        (
            "rms_norm_eps",
            json!("small"),
            "config.json | found \"small\"",
        ),
        ("model_type", Json::Null, "config.json | `model_type`"),
    ];
    let place = RunFolder::new();
    for (key, value, words) in cases {
        place.model(key);
        place.edit(&format!("{key}/config.json"), |config| config[key] = value);
        place
            .train(key, "--plugins lora --out out")
            .refused(key, 4, words);
        assert!(!place.path("out").exists(), "{key}");
    }
    place.model("cut");
    place.write("cut/config.json", "{\"model_type\":");
    let outcome = place.train("cut", "--plugins lora --out out");
    outcome.refused("cut", 4, "cut/config.json is not valid");
}

#[test]
fn rows_that_cannot_be_trained_on_are_named_by_file_and_line() {
    let cases = [
        (
            "{\"input_ids\": [1, 2}",
            "bad.jsonl:2: invalid JSON at column",
        ),
        ("17", "bad.jsonl:2: | 17"),
        (
            "{\"text\": \"a\"}",
            "bad.jsonl:2: field `input_ids` is missing",
        ),
        (
            "{\"input_ids\": [5, 512]}",
            "bad.jsonl:2: input_ids[1] = 512 | expected 0 to 511",
        ),
        (
            "{\"input_ids\": [5, 6], \"labels\": [5]}",
            "bad.jsonl:2: labels has 1 entries; expected 2",
        ),
    ];
    let place = RunFolder::new();
    place.model("model");
    for (row, words) in cases {
        place.write(
            "bad.jsonl",
            &format!("{{\"input_ids\": [5, 6, 7]}}\n{row}\n"),
        );
        let outcome = place.host("train --model model --data bad.jsonl --plugins lora --out out");
        outcome.refused(row, 3, words);
    }
    place.write(
        "bad.jsonl",
        "{\"input_ids\": [5, 6], \"labels\": [-100, -100]}\n",
    );
    let outcome = place.host("train --model model --data bad.jsonl --plugins lora --out out");
    outcome.refused(
        "untrained",
        3,
        "no token would be trained: of 1 rows | check labels",
    );
    assert!(!place.path("out").exists());
}

#[test]
fn a_tokenizer_must_fit_the_model() {
    let place = RunFolder::new();
    place.write("text.jsonl", "{\"text\": \"the quick brown fox\"}\n");
    for model in ["larger", "without", "cut"] {
        place.model(model);
    }
    place.edit("larger/tokenizer.json", |t| {
        t["model"]["vocab"]["zzzzzz"] = json!(9000)
    });
    fs::remove_file(place.path("without/tokenizer.json")).expect("removed");
    place.write("cut/tokenizer.json", "{\"model\":");
    for (model, words) in [
        (
            "larger",
            "larger/tokenizer.json does not match | `zzzzzz` has id 9000 | vocab_size is 512",
        ),
        ("without", "without/tokenizer.json does not exist"),
        ("cut", "cut/tokenizer.json is not a usable tokenizer"),
    ] {
        let arguments = format!("train --model {model} --data text.jsonl --plugins lora --out out");
        place.host(&arguments).refused(model, 3, words);
    }
    assert!(!place.path("out").exists());
}

#[test]
fn a_run_that_cannot_fit_is_refused_before_it_loads() {
    let place = RunFolder::new();
    place.model("giant");
    place.edit("giant/config.json", |config| {
        config["hidden_size"] = json!(65_536);
        config["head_dim"] = json!(128);
        config["num_attention_heads"] = json!(512);
        config["intermediate_size"] = json!(262_144);
        config["num_hidden_layers"] = json!(200);
    });
    // The weights do not fit the config, but they are not read: the plan comes first.
    for init in ["random", "checkpoint"] {
        let arguments = format!("--plugins lora --set model.init={init} --out out");
        let outcome = place.train("giant", &arguments);
        outcome.refused(init, 8, "not enough host memory | TiB needed | available");
        assert!(!place.path("out").exists(), "{init}");
    }
}

#[test]
fn a_full_disk_during_a_save_keeps_every_existing_file() {
    // A limit on the file size simulates a full disk: the weights exceed it.
    let limited = "ulimit -f 64; exec \"$0\" \"$@\"";
    for plugins in ["--plugins nf4,lora", ""] {
        let place = RunFolder::new();
        place.model("model");
        let mut shell = Command::new("sh");
        shell.args(["-c", limited, env!("CARGO_BIN_EXE_host")]);
        shell
            .args(RunFolder::words("model", plugins))
            .args(["--out", "out"]);
        let outcome = place.run(&mut shell);
        outcome.refused(plugins, 8, "no room for | .safetensors | make room");
        let left = place.names("out");
        assert!(
            !left.contains("adapter") && !left.contains("model"),
            "{left}"
        );
        assert!(!left.contains("partial"), "{left}");
        assert_eq!(place.read("out/metrics.jsonl").lines().count(), 2);
        serde_json::from_str::<Json>(&place.read("out/run.json")).expect("whole JSON");
    }
}

#[test]
fn a_nonempty_output_directory_is_not_changed() {
    let place = RunFolder::new();
    place.model("model");
    place
        .train("model", "--plugins lora --out done")
        .succeeded();
    fs::create_dir(place.path("half")).expect("created");
    place.write("half/metrics.jsonl", "{\"step\": 1}\n");
    place.write("file", "mine");
    let before = contents(place.0.path());
    for (out, words) in [
        ("done", "done already holds a finished run (adapter)"),
        (
            "half",
            "half already holds an unfinished run (metrics.jsonl); continue it with --resume",
        ),
        ("file", "cannot write file"),
        ("file/below", "cannot write file/below"),
    ] {
        let outcome = place.train("model", &format!("--plugins nf4,lora --out {out}"));
        outcome.refused(out, 2, &format!("{words} | choose another"));
        assert_eq!(contents(place.0.path()), before, "{out}");
    }
}

#[test]
fn an_adapter_of_another_model_is_refused() {
    let place = RunFolder::new();
    place.model("model");
    for adapter in ["rank", "name", "nan", "kind", "targets", "empty"] {
        copy_directory("adapter_init", &place.path(adapter));
    }
    place.edit("rank/adapter_config.json", |config| config["r"] = json!(4));
    place.edit("kind/adapter_config.json", |config| {
        config["peft_type"] = json!("LOHA")
    });
    place.edit("targets/adapter_config.json", |config| {
        config["target_modules"] = json!(null)
    });
    let weights = |name: &str| place.path(name).join("adapter_model.safetensors");
    Weights::edit(&weights("name"), |w| {
        w.rename(LORA, "layers.9.lora_A.weight")
    });
    Weights::edit(&weights("nan"), |w| w.data(LORA)[..4].copy_from_slice(&NAN));
    fs::remove_file(weights("empty")).expect("removed");
    for (adapter, code, words) in [
        (
            "rank",
            4,
            "q_proj.lora_A.weight` has shape [8, 64], expected [4, 64]",
        ),
        (
            "name",
            4,
            "tensor `layers.9.lora_A.weight` belongs to no site",
        ),
        (
            "nan",
            4,
            "q_proj.lora_A.weight`: element 0 is not a finite number",
        ),
        ("kind", 5, "peft_type `LOHA` | known: LORA"),
        // The file is at fault, and not the plugin that reads it.
        (
            "targets",
            4,
            "targets: adapter_config.json: `target_modules` is missing",
        ),
        ("empty", 4, "empty has no adapter_model.safetensors"),
    ] {
        let outcome = place.train("model", &format!("--adapter {adapter} --out out"));
        outcome.refused(adapter, code, words);
        assert_eq!(place.names("out"), "", "{adapter}");
    }
}

#[test]
fn numbers_out_of_range_are_named_with_their_bounds() {
    let place = RunFolder::new();
    place.model("model");
    let seed = "--set run.seed=18446744073709551615 --out out";
    let words = "a whole number from -9223372036854775808 to 9223372036854775807, found 18446744073709551615";
    place.train("model", seed).refused(seed, 2, words);
    let split = "--set data.eval_split=0.9 --out out";
    place
        .train("model", split)
        .refused(split, 3, "expected at least one row on each side");
    for (key, value) in [
        ("rope_theta", json!(1e-300)),
        ("rope_scaling", json!({"type": "linear", "factor": 1e-300})),
    ] {
        let model = key.replace("rope_", "");
        place.model(&model);
        place.edit(&format!("{model}/config.json"), |config| {
            config
                .as_object_mut()
                .expect("an object")
                .shift_remove("rope_parameters");
            config[key] = value;
        });
        let words =
            format!("{model}: config.json: `rope_theta` | expected angular steps that f32 holds");
        place
            .train(&model, "--plugins lora --out out")
            .refused(key, 4, &words);
    }
    assert_eq!(place.names("out"), "");
}
