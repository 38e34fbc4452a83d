//! The keys that commands take from the record of a run.

use std::fs;

use serde_json::json;

use super::*;

/// A run in `home`, with the record `run` completed by its working directory.
fn run(home: &Path, mut run: Value) -> std::path::PathBuf {
    run[WORKING_DIRECTORY] = Value::from(home.display().to_string());
    let out = home.join("out");
    fs::create_dir_all(out.join("adapter")).expect("created");
    fs::write(out.join("run.json"), run.to_string()).expect("written");
    out
}

fn identity(role: &str, component: &str) -> Value {
    json!({ "role": role, "component": component })
}

#[test]
fn a_model_is_recorded_as_its_run_left_it() {
    let home = tempfile::tempdir().expect("a folder");
    fs::create_dir_all(home.path().join("models/base")).expect("created");
    fs::write(home.path().join("chat.jinja"), "").expect("written");
    let at = |name: &str| Value::from(home.path().join(name).display().to_string());
    let first = json!({
        "config_version": 5,
        "config": {
            "plugins": ["nf4", "lora", "fsdp"],
            "model": {"path": "models/base", "compute": "f32", "init": "pretrained"},
            "run": {"seed": 7, "backend": "cpu", "plugin_dirs": ["gone"], "epochs": 3},
            "data": {"chat_template": "chat.jinja", "max_seq_len": 64, "files": ["rows"],
                     "eval_files": ["held"], "pack_tokens": null},
            "quantizer": {"nf4": {"block_size": 64}},
            "optim": {"learning_rate": 1.0},
        },
        "plugins": [identity("quantizer", "nf4"), identity("sharding", "fsdp")],
    });
    let out = run(home.path(), first.clone());
    let model = of_model(&out).expect("a record");
    assert_eq!(
        Value::Object(model.clone()),
        json!({
            "plugins": ["nf4", "lora"],
            "quantizer": {"nf4": {"block_size": 64}},
            "model": {"path": at("models/base"), "compute": "f32", "adapter": at("out/adapter")},
            "run": {"backend": "cpu", "plugin_dirs": ["gone"]},
            "data": {"chat_template": at("chat.jinja")},
        })
    );
    let rows = of_rows(&out).expect("a record");
    assert_eq!(rows["data"]["files"], json!(["held"]));
    assert_eq!(rows["data"]["max_seq_len"], 64);
    assert!(rows["data"].get("eval_files").is_none());

    // A random base needs the run's seed; after a swap, the plugins are those of the swap.
    let mut swapped = first;
    swapped["config"]["model"]["init"] = json!("random");
    swapped["swaps"] = json!([{
        "request": {"plugin_dirs": ["/theirs"]},
        "config": {"plugins": ["hqq", "lora"], "quantizer": {"hqq": {"bits": 3}}},
        "plugins": [identity("quantizer", "hqq")],
    }]);
    let out = run(home.path(), swapped);
    let model = of_model(&out).expect("a record");
    assert_eq!(model["plugins"], json!(["hqq", "lora"]));
    assert_eq!(model["quantizer"], json!({"hqq": {"bits": 3}}));
    assert_eq!(model["run"]["plugin_dirs"], json!(["/theirs", "gone"]));
    assert_eq!(
        (&model["run"]["seed"], &model["model"]["init"]),
        (&json!(7), &json!("random"))
    );
    // To continue it, its swaps are repeated.
    let whole = of_run(&out).expect("a record");
    assert_eq!(whole["plugins"], json!(["nf4", "lora", "fsdp"]));
    assert_eq!(whole["optim"]["learning_rate"], 1.0);
}

#[test]
fn a_path_that_is_not_at_its_place_stays() {
    let home = tempfile::tempdir().expect("a folder");
    let places = |home: Value| Places::of(&json!({ WORKING_DIRECTORY: home }));
    fs::create_dir(home.path().join("here")).expect("created");
    let found = |places: &Places, path: &str| {
        let mut config = json!({"model": {"path": path}, "data": {"chat_template": path}});
        places.find_in(&mut config);
        [&config["model"]["path"], &config["data"]["chat_template"]].map(|one| one == path)
    };
    let known = places(Value::from(home.path().display().to_string()));
    assert_eq!(found(&known, "org/name"), [true, true]);
    assert_eq!(found(&known, "here"), [false, true]);
    assert_eq!(found(&known, "./here"), [false, false]);
    for unknown in [Value::Null, json!("relative")] {
        assert_eq!(found(&places(unknown), "here"), [true, true]);
    }
}
