//! Fields of `config.json`: defaults of transformers, and refused values.

use espalier_interface::ErrorCode;
use serde_json::json;

use super::*;

fn tiny() -> Json {
    json!({
        "model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 176,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5, "attention_dropout": 0.0
    })
}

fn read(config: &Json) -> Result<DecoderConfig> {
    DecoderConfig::read(config, &crate::model::PLAIN)
}

fn with(key: &str, value: Json) -> Json {
    let mut config = tiny();
    config[key] = value;
    config
}

#[test]
fn what_is_left_out_takes_transformers_defaults() {
    let mut config = tiny();
    config
        .as_object_mut()
        .expect("an object")
        .remove("num_key_value_heads");
    let read = read(&config).expect("complete");
    assert_eq!((read.num_kv_heads, read.head_dim), (4, 16));
    assert_eq!((read.max_positions, read.tied_head), (2048, false));
    assert_eq!(read.rope.theta, 10_000.0);
}

#[test]
fn a_head_dim_of_its_own_widens_the_queries() {
    let read = read(&with("head_dim", json!(32))).expect("allowed");
    assert_eq!((read.query_width(), read.kv_width()), (128, 64));
}

#[test]
fn impossible_values_are_shown_with_what_was_expected() {
    let cases = [
        (
            "hidden_size",
            json!(66),
            ["`hidden_size` 66", "`num_attention_heads` 4"],
        ),
        (
            "num_key_value_heads",
            json!(3),
            ["heads` 4", "`num_key_value_heads` 3"],
        ),
        (
            "num_hidden_layers",
            json!(0),
            ["`num_hidden_layers`", "found 0"],
        ),
        (
            "vocab_size",
            json!(1u64 << 60),
            ["1..=16777216", "found 1152921504606846976"],
        ),
        ("hidden_size", json!(-64), ["`hidden_size`", "found -64"]),
        (
            "vocab_size",
            json!("512"),
            ["a whole number", "found \"512\""],
        ),
        ("vocab_size", json!(null), ["`vocab_size`", "found nothing"]),
        ("head_dim", json!(15), ["15 wide", "even"]),
        (
            "head_dim",
            json!(1u64 << 23),
            ["are 33554432 wide", "16777216"],
        ),
        ("rms_norm_eps", json!(0), ["`rms_norm_eps`", "found 0"]),
        ("rope_theta", json!(1e-300), ["`rope_theta` 1e-300", "inf"]),
        (
            "rope_scaling",
            json!({"type": "linear", "factor": 1e-300}),
            ["`rope_theta` 1e4 with its scaling", "pair 0"],
        ),
        (
            "tie_word_embeddings",
            json!(1),
            ["true or false", "found 1"],
        ),
    ];
    for (key, value, parts) in cases {
        let error = read(&with(key, value)).expect_err(key);
        assert_eq!(error.code, ErrorCode::INVALID, "{error}");
        for part in parts {
            assert!(error.message.contains(part), "{error}");
        }
    }
}

#[test]
fn a_model_beyond_all_memory_is_refused() {
    let mut config = tiny();
    for key in ["hidden_size", "intermediate_size", "vocab_size"] {
        config[key] = json!(1 << 24);
    }
    config["num_hidden_layers"] = json!(4096);
    let error = read(&config).expect_err("2^62 weights");
    assert!(
        error.message.contains("expected at most 1125899906842624"),
        "{error}"
    );
}

#[test]
fn other_architectures_are_named() {
    let cases = [
        ("hidden_act", json!("gelu"), "`gelu`"),
        ("model_type", json!("mistral"), "`mistral`"),
        (
            "attention_dropout",
            json!(0.1),
            "`attention_dropout` is 0.1",
        ),
    ];
    for (key, value, part) in cases {
        let error = read(&with(key, value)).expect_err(key);
        assert_eq!(error.code, ErrorCode::UNSUPPORTED, "{error}");
        assert!(error.message.contains(part), "{error}");
    }
}

#[test]
fn what_is_no_object_is_refused() {
    let error = read(&json!([1, 2])).expect_err("a list");
    assert_eq!(
        error.message,
        "config.json: expected an object, found [1,2]"
    );
}
