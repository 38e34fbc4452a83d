//! Which differences between a run and its checkpoint are allowed.

use super::*;
use crate::checkpoint::CONFIG_VERSION;

fn run(total: u64, schedule: &str) -> Json {
    json!({
        "espalier": "0.1.0",
        "config_version": CONFIG_VERSION,
        "config": {
            "plugins": ["nf4", "lora"],
            "run": {"out": "a", "threads": 1, "epochs": 1, "max_steps": total, "seed": 42},
            "optim": {"learning_rate": 2e-4, "schedule": schedule},
        },
        "plugins": [{"component": "nf4", "version": "0.1.0", "sha256": null, "file": null}],
        "model": {"files": [{"file": "config.json", "sha256": "aa"}]},
        "data": {"files": [{"path": "x/rows.jsonl", "sha256": "bb"}], "total_steps": total},
        "plan_sha256": "cc",
    })
}

fn shown(old: &Json, new: &Json, step: u64) -> Vec<String> {
    let found = differences(old, new, step, &Extension::default());
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn keys_that_change_no_result_can_change() {
    let (old, mut new) = (run(9, "constant"), run(9, "constant"));
    new["config"]["plugins"] = json!(["lora", "nf4"]);
    new["config"]["run"]["out"] = json!("/elsewhere");
    new["config"]["run"]["threads"] = Json::Null;
    new["data"]["files"][0]["path"] = json!("y/lines.jsonl");
    new["plugins"][0]["file"] = json!("/y/libnf4.so");
    assert_eq!(shown(&old, &new, 3), [""; 0]);
}

#[test]
fn a_run_can_resume_with_another_number_of_ranks() {
    let (old, mut new) = (run(9, "constant"), run(9, "constant"));
    new["world"] = json!(4);
    new["config"]["run"]["ranks"] = json!(4);
    new["config"]["plugins"] = json!(["nf4", "lora", "fsdp"]);
    new["config"]["sharding"] = json!({"fsdp": {"offload": "params"}});
    let fsdp = json!({"component": "fsdp", "role": "sharding", "version": "0.1.0"});
    new["plugins"].as_array_mut().expect("a list").push(fsdp);
    assert_eq!(shown(&old, &new, 3), [""; 0]);
    assert_eq!(shown(&new, &old, 3), [""; 0]);
    // For a finished run only the config is compared.
    let again = json!({"config": new["config"]});
    assert!(config_differences(&new, &again, u64::MAX, &Extension::default()).is_empty());
    new["config"]["plugins"] = json!(["nf4", "fsdp"]);
    assert!(!shown(&old, &new, 3).is_empty());
}

#[test]
fn a_newer_key_is_no_difference_where_the_run_has_the_earlier_value() {
    let (mut old, mut new) = (run(9, "constant"), run(9, "constant"));
    old.as_object_mut()
        .expect("a record")
        .remove("config_version");
    let data = |train_on| {
        json!({
            "train_on": train_on,
            "on_empty": "train",
            "tools": "ignore",
            "calibration_files": [],
            "calibration_rows": 128,
        })
    };
    new["config"]["data"] = data("completion");
    new["config"]["optim"]["decay_norms_and_biases"] = json!(true);
    new["config"]["optim"]["groups"] = json!([]);
    new["config"]["optim"]["in_backward"] = json!(false);
    new["config"]["optim"]["min_8bit_size"] = json!(4096);
    new["config"]["optim"]["state"] = json!("f32");
    new["config"]["optim"]["stochastic_rounding"] = json!(false);
    new["config"]["model"]["train_only"] = json!([]);
    new["config"]["model"]["gradients"] = json!("f32");
    new["config"]["run"]["keep_best"] = json!(false);
    assert_eq!(shown(&old, &new, 3), [""; 0]);
    new["config"]["data"] = data("all");
    let refused = ["data.train_on: \"completion\" -> \"all\""];
    assert_eq!(shown(&old, &new, 3), refused);
    // A value in the older record has precedence.
    old["config"]["data"] = json!({"train_on": "all"});
    assert_eq!(shown(&old, &new, 3), [""; 0]);
}

#[test]
fn a_newer_program_can_resume_and_another_library_cannot() {
    let (mut old, mut new) = (run(9, "constant"), run(9, "constant"));
    old["espalier"] = json!("0.0.9");
    for (run, abi) in [(&mut old, 2), (&mut new, 4)] {
        run["plugins"][0]["abi"] = json!([0, abi]);
    }
    old["plugins"][0]["version"] = json!("0.0.9");
    new["plugins"][0]["version"] = json!(env!("CARGO_PKG_VERSION"));
    assert_eq!(shown(&old, &new, 3), [""; 0]);
    // A plugin with its own version, linked by a custom host.
    new["plugins"][0]["version"] = json!("7.0.0");
    let own = ["plugin nf4.version: \"0.0.9\" -> \"7.0.0\""];
    assert_eq!(shown(&old, &new, 3), own);
    new["plugins"][0]["sha256"] = json!("dd");
    assert_eq!(shown(&old, &new, 3).len(), 3);
}

#[test]
fn the_options_of_a_saved_adapter_are_compared_by_its_files() {
    let (mut old, mut new) = (run(9, "constant"), run(9, "constant"));
    for run in [&mut old, &mut new] {
        run["model"]["adapter_files"] = json!([{"file": "adapter_config.json", "sha256": "a"}]);
    }
    // An earlier program accepted such an option and ignored it.
    old["config"]["adapter"] = json!({"lora": {"rank": 16}});
    assert_eq!(shown(&old, &new, 3), [""; 0]);
    let again = json!({"config": new["config"]});
    assert!(config_differences(&old, &again, u64::MAX, &Extension::default()).is_empty());
    // After a swap of the adapter its options come from the config.
    old["swaps"] = json!([{"request": {"role": "adapter"}}]);
    assert_eq!(shown(&old, &new, 3), ["adapter.lora.rank: 16 -> unset"]);
}

#[test]
fn every_other_difference_is_reported_with_both_values() {
    let (old, mut new) = (run(9, "constant"), run(9, "constant"));
    new["config"]["run"]["seed"] = json!(7);
    new["config"]["run"]["eval_every"] = json!(2);
    assert!(
        differences(&old, &new, 3, &Extension::default())
            .iter()
            .all(Difference::is_of_config)
    );
    new["plugins"][0]["sha256"] = json!("dd");
    new["model"]["files"][0]["sha256"] = json!("ee");
    new["data"]["files"][0]["sha256"] = json!("ff");
    new["plan_sha256"] = json!("gg");
    let expected = [
        "run.eval_every: unset -> 2",
        "run.seed: 42 -> 7",
        "plugin nf4.sha256: unset -> \"dd\"",
        "model file config.json: aa -> ee",
        "data file 1: bb -> ff",
    ];
    assert_eq!(shown(&old, &new, 3), expected);
    let mut new = old.clone();
    new["plan_sha256"] = json!("gg");
    assert_eq!(shown(&old, &new, 3), ["plan: \"cc\" -> \"gg\""]);
}

#[test]
fn a_run_can_become_longer_where_its_steps_are_unchanged() {
    let longer = |schedule, step| shown(&run(9, schedule), &run(12, schedule), step);
    assert_eq!(longer("constant", 3), [""; 0]);
    let refused = longer("linear", 3);
    assert_eq!(refused.len(), 1, "{refused:?}");
    let expected = "run.max_steps: 9 -> 12 (the learning rate of step 2 follows from";
    assert!(refused[0].starts_with(expected), "{refused:?}");
    assert!(longer("constant", 9)[0].contains("had come to its end"));
    let shorter = shown(&run(12, "constant"), &run(9, "constant"), 3);
    assert!(shorter[0].contains("cannot become"), "{shorter:?}");
}

#[test]
fn a_key_that_no_config_has_is_a_sign_of_damage() {
    let (mut old, new) = (run(9, "constant"), run(9, "constant"));
    old["config"]["run"]["thveads"] = json!(1);
    let [difference] = &shown(&old, &new, 3)[..] else {
        panic!("expected one difference");
    };
    assert!(difference.starts_with("run.thveads: 1 -> unset (no config has this key: `run.json`"));
}
