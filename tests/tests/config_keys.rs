//! Every key of transformers' configs -> each family takes its default, and uses or refuses another
//! value; keys that it does not know are refused.

#[allow(dead_code, unused_imports)] // A part of it is used here.
mod shipped;

use std::fs;
use std::path::Path;

use espalier_interface::model::Model;
use espalier_interface::{ErrorCode, Family, PluginError};
use serde_json::{Map, Value as Json, json};

use espalier_shipped as _;
use shipped::{SERVICES, ours};

/// Keys of windows that change nothing where the default config has none: each alone gives none.
const SWITCHED_OFF: &[&str] = &["max_window_layers", "sliding_window", "use_sliding_window"];

/// The families, their components, and the keys that transformers ignores beside the defaults: a
/// window that is switched off, and the length of pretraining without a scaling.
const FAMILIES: [(&str, &str, &[&str]); 9] = [
    ("llama", "llama", &[]),
    ("mistral", "mistral", &[]),
    ("qwen2", "qwen2", SWITCHED_OFF),
    ("qwen3", "qwen3", SWITCHED_OFF),
    ("granite", "granite", &[]),
    ("gemma2", "gemma2", &[]),
    ("gemma3_text", "gemma3", &["_sliding_window_pattern"]),
    ("phi3", "phi3", &["original_max_position_embeddings"]),
    ("starcoder2", "starcoder2", &[]),
];

/// Keys that change nothing of what a model computes: names, versions, special tokens, and what
/// transformers returns. Written down here a second time, since the families' list is on trial.
const NOTHING: [&str; 15] = [
    "_name_or_path",
    "architectures",
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "id2label",
    "label2id",
    "max_position_embeddings",
    "model_type",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "return_dict",
    "transformers_version",
    "use_cache",
];

/// Each family with its model type and the keys that it may ignore.
fn families() -> Vec<(&'static str, Box<dyn Family>, &'static [&'static str])> {
    let registry = ours();
    let made = FAMILIES.map(|(model_type, name, ignored)| {
        let family = registry.create_family(name, &Map::new(), SERVICES);
        (model_type, family.expect(name).0, ignored)
    });
    made.into_iter().collect()
}

/// The keys of a family with transformers' defaults, for two layers.
fn defaults(model_type: &str) -> Map<String, Json> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/config/keys.json");
    let text = fs::read(path).expect("golden data");
    let keys: Json = serde_json::from_slice(&text).expect("JSON");
    let keys = keys["families"][model_type].as_object();
    let mut keys = keys.expect("a family").clone();
    keys["num_hidden_layers"] = json!(2);
    if let Some(Json::Array(kinds)) = keys.get_mut("layer_types") {
        kinds.truncate(2);
    }
    keys
}

/// Another value of the same type.
fn other(value: &Json) -> Json {
    match value {
        Json::Null => json!(7),
        Json::Bool(on) => json!(!on),
        Json::Number(number) if number.is_f64() => json!(number.as_f64().unwrap_or(0.0) + 0.5),
        Json::Number(number) => json!(number.as_u64().unwrap_or(0) + 2),
        Json::String(_) => json!("other"),
        Json::Array(list) => json!(vec!["other"; list.len()]),
        Json::Object(_) => json!({"other": 1}),
    }
}

fn describe(family: &dyn Family, keys: &Map<String, Json>) -> Result<Model, PluginError> {
    family.describe(&Json::Object(keys.clone()))
}

#[test]
fn every_default_is_taken_and_another_value_is_used_or_refused() {
    let mut ignored_keys = Vec::new();
    for (model_type, family, ignored) in families() {
        let keys = defaults(model_type);
        let model = describe(&*family, &keys).expect(model_type);
        for (key, value) in &keys {
            let mut changed = keys.clone();
            changed[key] = other(value);
            let is_ignored = describe(&*family, &changed).is_ok_and(|found| found == model);
            let may_be = NOTHING.contains(&key.as_str()) || ignored.contains(&key.as_str());
            if is_ignored && !may_be {
                ignored_keys.push(format!("{model_type}: {key} = {}", changed[key]));
            }
        }
    }
    assert_eq!(ignored_keys, [""; 0]);
}

#[test]
fn unknown_keys_are_refused_with_their_value_unless_they_are_off() {
    for (model_type, family, _) in families() {
        let with = |key: &str, value: Json| {
            let mut keys = defaults(model_type);
            keys.insert(key.to_owned(), value);
            describe(&*family, &keys)
        };
        for (key, value) in [
            ("num_local_experts", json!(8)),
            ("use_alibi", json!(true)),
            ("pretraining_tp", json!(2)),
            ("hidden_dropout", json!(0.1)),
            ("temperature_tuning", json!("on")),
        ] {
            let error = with(key, value.clone()).expect_err(key);
            assert_eq!(error.code, ErrorCode::UNSUPPORTED, "{model_type}: {error}");
            for word in [&format!("`{key}` is {value}"), "remove it from config.json"] {
                assert!(error.message.contains(word), "{model_type}: {error}");
            }
        }
        for (key, value) in [
            ("use_alibi", json!(false)),
            ("pretraining_tp", json!(1)),
            ("temperature", json!(0.6)),
            ("unheard_of", json!(null)),
        ] {
            with(key, value).expect(key);
        }
    }
}

#[test]
fn keys_of_one_family_are_refused_by_another() {
    for (model_type, family, _) in families() {
        for (key, value, readers) in [
            (
                "query_pre_attn_scalar",
                json!(64),
                &["gemma2", "gemma3_text"][..],
            ),
            (
                "rope_local_base_freq",
                json!(5e3),
                &["gemma2", "gemma3_text"],
            ),
            ("use_sliding_window", json!(true), &["qwen2", "qwen3"]),
            ("embedding_multiplier", json!(12.0), &["granite"]),
            ("norm_epsilon", json!(1e-5), &["starcoder2"]),
            ("use_bias", json!(true), &["starcoder2"]),
            ("residual_dropout", json!(0.0), &["starcoder2"]),
        ] {
            let mut keys = defaults(model_type);
            keys.insert(key.to_owned(), value);
            let is_read = readers.contains(&model_type);
            let found = describe(&*family, &keys);
            assert_eq!(found.is_ok(), is_read, "{model_type}: {key}: {found:?}");
        }
    }
}
