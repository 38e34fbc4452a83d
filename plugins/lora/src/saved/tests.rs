//! `adapter_config.json`, written by PEFT and by this adapter <-> options.

use std::sync::Arc;

use espalier_interface::adaptation::SiteKind;
use espalier_interface::{Adapter, ErrorCode, Serial};

use super::*;
use crate::{Lora, Variant};

fn sites() -> Vec<Site> {
    ["q_proj", "v_proj"]
        .map(|name| Site {
            name: format!("model.layers.0.self_attn.{name}"),
            kind: SiteKind::Linear,
            shape: [64, 64],
            tied_to: None,
            has_bias: false,
        })
        .to_vec()
}

fn lora(options: Json) -> Lora {
    made(Variant::Lora, options)
}

/// The adapter with `options` and a ratio of learning rates, which is not saved.
fn made(variant: Variant, mut options: Json) -> Lora {
    options["learning_rate_ratio"] = json!(2.0);
    let options: Options = serde_json::from_value(options).expect("an object");
    Lora::new(variant, &options, Arc::new(Serial)).expect("good options")
}

#[test]
fn written_settings_are_read_back() {
    let options = json!({
        "rank": 4, "alpha": 6.5, "dropout": 0.25, "targets": ["v_proj"], "rslora": true,
        "rank_pattern": {"layers.0.*": 2, "v_proj": 8}, "alpha_pattern": {"v_proj": 1.5}, "modules_to_save": []
    });
    let lora = lora(options.clone());
    let saved = lora
        .saved_config(&sites(), "models/tiny")
        .expect("a site matches");
    assert_eq!(saved["target_modules"], json!(["v_proj"]));
    assert_eq!(saved["base_model_name_or_path"], "models/tiny");
    assert_eq!(saved["lora_alpha"], 6.5);
    assert_eq!(
        saved["rank_pattern"].to_string(),
        r#"{"layers.0.*":2,"v_proj":8}"#
    );
    let read = lora.options_from_saved(&saved).expect("our own");
    assert_eq!(Json::Object(read.0), options);
}

#[test]
fn whole_alphas_are_written_as_peft_writes_them() {
    let lora = lora(json!({
        "rank": 8, "alpha": 16.0, "dropout": 0.0, "targets": "all-linear", "rslora": false,
        "modules_to_save": []
    }));
    let saved = lora.saved_config(&sites(), "m").expect("linears");
    assert_eq!(saved["lora_alpha"].to_string(), "16");
    assert_eq!(saved["target_modules"], json!(["q_proj", "v_proj"]));
    assert_eq!(saved.as_object().expect("an object").len(), 41);
}

#[test]
fn missing_keys_take_pefts_defaults() {
    let read = read(
        Variant::Lora,
        &json!({"peft_type": "LORA", "target_modules": ".*q_proj"}),
    );
    let options = read.expect("enough for PEFT");
    assert_eq!(options.0["rank"], 8);
    assert_eq!(options.0["alpha"], 8);
    assert_eq!(options.0["targets"], ".*q_proj");
}

#[test]
fn unsupported_features_are_named() {
    let cases = [
        ("use_dora", json!(true)),
        ("bias", json!("all")),
        ("lora_bias", json!(true)),
        ("fan_in_fan_out", json!(true)),
        ("layers_to_transform", json!([0])),
        ("exclude_modules", json!("lm_head")),
        ("init_lora_weights", json!("pissa")),
        ("layer_replication", json!([[0, 1]])),
        ("trainable_token_indices", json!([3])),
        ("task_type", json!("SEQ_CLS")),
        ("a_later_invention", json!(1)),
        ("peft_type", json!("LOHA")),
    ];
    for (key, value) in cases {
        let mut config = json!({"peft_type": "LORA", "target_modules": ["q_proj"]});
        config[key] = value;
        let error = read(Variant::Lora, &config).expect_err(key);
        assert_eq!(error.code, ErrorCode::UNSUPPORTED);
        assert!(error.message.contains(&format!("`{key}` is ")), "{error}");
    }
    let error = read(Variant::Lora, &json!({"peft_type": "LORA"})).expect_err("no targets");
    assert!(
        error.message.contains("`target_modules` is missing"),
        "{error}"
    );
}

/// `adapter_config.json` of an adapter that PEFT 0.21.2 saved, the keys that are not neutral.
#[test]
fn a_config_saved_by_peft_is_read() {
    let config = json!({
        "base_model_name_or_path": "models/tiny-trained", "bias": "none",
        "ensure_weight_tying": false, "inference_mode": true, "init_lora_weights": true,
        "loftq_config": {}, "lora_alpha": 16, "lora_dropout": 0.0, "megatron_config": null,
        "megatron_core": "megatron.core", "peft_type": "LORA", "peft_version": "0.21.2",
        "qalora_group_size": 16, "r": 8, "rank_pattern": {}, "revision": null,
        "target_modules": ["down_proj", "v_proj"], "task_type": "CAUSAL_LM",
        "use_dora": false, "use_qalora": false, "use_rslora": false
    });
    let options = read(Variant::Lora, &config).expect("a plain LoRA");
    let expected = json!({
        "rank": 8, "alpha": 16, "dropout": 0.0, "targets": ["down_proj", "v_proj"],
        "rslora": false, "rank_pattern": {}, "alpha_pattern": {}, "modules_to_save": []
    });
    assert_eq!(Json::Object(options.0), expected);
}

#[test]
fn a_dora_writes_use_dora_and_reads_no_other() {
    let options = json!({
        "rank": 4, "alpha": 8, "dropout": 0.0, "targets": ["v_proj"], "rslora": true,
        "rank_pattern": {}, "alpha_pattern": {"v_proj": 4}, "modules_to_save": ["q_proj"]
    });
    let dora = made(Variant::Dora, options.clone());
    let mut saved = dora.saved_config(&sites(), "m").expect("a site matches");
    assert_eq!(saved["use_dora"], true);
    assert_eq!(saved["modules_to_save"], json!(["q_proj"]));
    let read_back = dora.options_from_saved(&saved).expect("our own");
    assert_eq!(Json::Object(read_back.0), options);
    let error = read(Variant::Lora, &saved).expect_err("a DoRA");
    assert!(error.message.contains("the adapter `dora`"), "{error}");
    for other in [json!(false), Json::Null, json!("true")] {
        saved["use_dora"] = other;
        let error = dora.options_from_saved(&saved).expect_err("no DoRA");
        assert_eq!(error.code, ErrorCode::UNSUPPORTED);
        assert!(error.message.contains("`use_dora` is "), "{error}");
    }
}
