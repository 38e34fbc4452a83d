//! The family that `host plugins new` writes reads what transformers 5 writes, and refuses what it
//! does not know.

use std::sync::Arc;

use espalier_interface::model::Model;
use espalier_interface::{ErrorCode, Instance, Options, PluginError, Serial};
use serde_json::{Value as Json, json};

#[path = "../../hosts/cli/templates/family.rs"]
mod family;

fn describe(config: &Json) -> Result<Model, PluginError> {
    let made = (family::COMPONENT.create)(&Options::default(), Arc::new(Serial));
    match made.expect("it has no options") {
        Instance::Family(family) => family.describe(config),
        _ => panic!("not a family"),
    }
}

/// What `LlamaConfig(...).to_json_string(use_diff=False)` of transformers 5.23 gives.
fn transformers_5() -> Json {
    json!({
        "_name_or_path": "", "architectures": null, "attention_bias": false,
        "attention_dropout": 0.0, "bos_token_id": 1, "chunk_size_feed_forward": 0, "dtype": null,
        "eos_token_id": 2, "head_dim": 16, "hidden_act": "silu", "hidden_size": 64,
        "id2label": {"0": "LABEL_0"}, "initializer_range": 0.02, "intermediate_size": 176,
        "is_encoder_decoder": false, "label2id": {"LABEL_0": 0}, "max_position_embeddings": 256,
        "mlp_bias": false, "model_type": "llama", "num_attention_heads": 4,
        "num_hidden_layers": 2, "num_key_value_heads": 2, "output_attentions": false,
        "output_hidden_states": false, "pad_token_id": null, "pretraining_tp": 1,
        "problem_type": null, "return_dict": true, "rms_norm_eps": 1e-06,
        "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"},
        "tie_word_embeddings": false, "transformers_version": "5.23.0", "use_cache": true,
        "vocab_size": 512,
    })
}

fn with(key: &str, value: Json) -> Json {
    let mut config = transformers_5();
    config[key] = value;
    config
}

#[test]
fn the_rotary_base_is_that_of_either_version_of_transformers() {
    let fifth = describe(&transformers_5()).expect("read");
    let mut fourth = with("rope_theta", json!(500_000.0));
    fourth["rope_parameters"] = Json::Null;
    assert_eq!(describe(&fourth).expect("read"), fifth);
    fourth["rope_theta"] = json!(10_000.0);
    assert_ne!(describe(&fourth).expect("read"), fifth);
}

#[test]
fn what_it_does_not_know_is_refused_by_name() {
    for (key, value) in [
        ("attention_bias", json!(true)),
        ("attention_dropout", json!(0.1)),
        ("attn_logit_softcapping", json!(50.0)),
        ("hidden_act", json!("gelu")),
        ("is_causal", json!(false)),
        ("logits_scaling", json!(8)),
        ("sliding_window", json!(4096)),
        ("use_qk_norm", json!(true)),
        (
            "rope_parameters",
            json!({"rope_type": "yarn", "factor": 4.0}),
        ),
        (
            "rope_parameters",
            json!({"rope_type": "default", "partial_rotary_factor": 0.5}),
        ),
        (
            "rope_parameters",
            json!({"full_attention": {"rope_type": "default"}}),
        ),
        ("rope_scaling", json!({"type": "linear", "factor": 2.0})),
    ] {
        let error = describe(&with(key, value)).expect_err(key);
        assert_eq!(error.code, ErrorCode::UNSUPPORTED, "{key}: {error}");
        assert!(
            error.message.contains(&format!("`{key}`")),
            "{key}: {error}"
        );
    }
    let error = describe(&with("rope_parameters", json!(3))).expect_err("no object");
    assert_eq!(error.code, ErrorCode::INVALID);
}
