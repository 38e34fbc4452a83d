//! A real tokenizer against transformers' ids, and invalid tokenizers.

use std::fs;
use std::path::Path;

use espalier_data::{DataOptions, Dataset, TextTokenizer, Vocabulary};
use espalier_tests::rows::{END, VOCAB_SIZE, file, model_with, options, read, tiny};
use serde_json::Value;
use tempfile::TempDir;

#[test]
fn token_ids_equal_those_of_transformers() {
    let cases = fs::read(tiny().parent().unwrap().join("tokenizer_cases.json")).unwrap();
    let cases: Vec<Value> = serde_json::from_slice(&cases).unwrap();
    let tokenizer = TextTokenizer::load(&tiny(), VOCAB_SIZE).unwrap();
    let mut lines = String::new();
    let mut expected_rows = Vec::new();
    for case in &cases {
        let ids = |key: &str| -> Vec<i32> { serde_json::from_value(case[key].clone()).unwrap() };
        let text = case["text"].as_str().unwrap();
        let expected = ids("tiny");
        assert_eq!(tokenizer.encode(text).unwrap(), expected, "{text:?}");
        assert_eq!(
            tokenizer.decode(&ids("tiny_no_special")).unwrap(),
            case["tiny_decoded"].as_str().unwrap()
        );
        // A text without a word is not a training row.
        if text.is_empty() {
            continue;
        }
        lines += &serde_json::json!({ "text": text }).to_string();
        lines += "\n";
        let ended = expected.last() == Some(&END);
        expected_rows.push([&expected[..], &[END][usize::from(ended)..]].concat());
    }
    assert!(expected_rows.len() >= 4);
    let data = read("cases.jsonl", lines, |_| ()).unwrap();
    assert_eq!(data.num_sequences(), expected_rows.len());
    for (row, expected) in expected_rows.iter().enumerate() {
        let sequence = data.sequence(row).unwrap();
        assert_eq!(&sequence.tokens, expected);
        let labels: Vec<i32> = sequence.labels().collect();
        let shifted = [&expected[1..], &[-100]].concat();
        assert_eq!(labels, shifted, "every token is trained, the end token too");
    }
}

#[test]
fn the_end_token_is_added_once() {
    let rows = r#"{"text": "a"}
{"text": "a<|end_of_text|>"}
{"text": "<|end_of_text|>"}
"#;
    let data = read("f.jsonl", rows, |_| ()).unwrap();
    assert_eq!(
        data.sequence(0).unwrap().tokens,
        data.sequence(1).unwrap().tokens
    );
    assert_eq!(data.sequence(2).unwrap().tokens, [0, END]);
}

#[test]
fn the_end_token_comes_from_the_first_file_that_names_one() {
    let end_token = |directory: &TempDir| {
        TextTokenizer::load(directory.path(), VOCAB_SIZE).map(|t| t.end_token())
    };
    let end = |name, content| end_token(&model_with(name, Some(content))).unwrap();
    let described = r#"{"eos_token": {"content": "<|pad|>", "special": true}}"#;
    assert_eq!(end("tokenizer_config.json", described), 2);
    assert_eq!(end("tokenizer_config.json", r#"{"eos_token": ""}"#), 1);

    let several = model_with("config.json", Some(r#"{"eos_token_id": [7, 1]}"#));
    fs::write(several.path().join("tokenizer_config.json"), "{}").unwrap();
    assert_eq!(end_token(&several).unwrap(), 7);
    fs::write(several.path().join("config.json"), "{}").unwrap();
    assert_eq!(end_token(&several).unwrap(), 1); // generation_config.json
    fs::remove_file(several.path().join("generation_config.json")).unwrap();
    let message = end_token(&several).unwrap_err().to_string();
    assert!(message.contains("names no end token"), "{message}");
    fs::write(
        several.path().join("config.json"),
        r#"{"eos_token_id": 512}"#,
    )
    .unwrap();
    let message = end_token(&several).unwrap_err().to_string();
    assert!(message.contains("eos_token_id 512"), "{message}");
    let unknown = model_with("tokenizer_config.json", Some(r#"{"eos_token": "</s>"}"#));
    let message = end_token(&unknown).unwrap_err().to_string();
    assert!(
        message.contains("`</s>` is not in tokenizer.json"),
        "{message}"
    );
}

#[test]
fn truncation_and_padding_stored_in_the_tokenizer_are_off() {
    let text = fs::read_to_string(tiny().join("tokenizer.json")).unwrap();
    let mut json: Value = serde_json::from_str(&text).unwrap();
    json["truncation"] = serde_json::json!({
        "direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0
    });
    json["padding"] = serde_json::json!({
        "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": null,
        "pad_id": 2, "pad_type_id": 0, "pad_token": "<|pad|>"
    });
    let model = model_with("tokenizer.json", Some(&json.to_string()));
    let changed = TextTokenizer::load(model.path(), VOCAB_SIZE).unwrap();
    let plain = TextTokenizer::load(&tiny(), VOCAB_SIZE).unwrap();
    let text = "In the beginning God created the heaven and the earth.";
    assert_eq!(changed.encode(text).unwrap(), plain.encode(text).unwrap());
    assert_ne!(changed.sha256(), plain.sha256());
}

#[test]
fn a_tokenizer_without_a_beginning_token_adds_none() {
    let text = fs::read_to_string(tiny().join("tokenizer.json")).unwrap();
    let mut json: Value = serde_json::from_str(&text).unwrap();
    json["post_processor"] = Value::Null;
    let model = model_with("tokenizer.json", Some(&json.to_string()));
    let tokenizer = TextTokenizer::load(model.path(), VOCAB_SIZE).unwrap();
    assert_eq!(tokenizer.encode("").unwrap(), [0i32; 0]);
    // A row with only the end token has no token to predict it from.
    let files = file(
        "f.jsonl",
        "{\"text\": \"<|end_of_text|>\"}\n{\"text\": \"ab\"}\n",
    );
    let vocabulary = Vocabulary::new(model.path(), VOCAB_SIZE);
    let load = |options: &DataOptions| Dataset::open(options, &vocabulary, 42, &mut |_| ());
    let (data, _) = load(&options(&files.path)).unwrap();
    assert_eq!((data.num_sequences(), data.counts().untrained), (1, 1));
}

#[test]
fn a_tokenizer_that_does_not_match_is_refused() {
    let load = |directory: &Path, size| {
        TextTokenizer::load(directory, size)
            .err()
            .expect("refused")
            .to_string()
    };
    let smaller = load(&tiny(), 511);
    assert!(
        smaller.contains("does not match the model") && smaller.contains("has id 511"),
        "{smaller}"
    );
    let missing = load(model_with("tokenizer.json", None).path(), VOCAB_SIZE);
    assert!(
        missing.contains("tokenizer.json does not exist"),
        "{missing}"
    );
    for damaged in ["", "{}", "[1]", "{\"version\": \"1.0\", \"model\": 3}"] {
        let message = load(
            model_with("tokenizer.json", Some(damaged)).path(),
            VOCAB_SIZE,
        );
        assert!(
            message.contains("is not a usable tokenizer"),
            "{damaged}: {message}"
        );
    }
    let config = load(
        model_with("tokenizer_config.json", Some("{")).path(),
        VOCAB_SIZE,
    );
    assert!(
        config.contains("tokenizer_config.json is not a usable tokenizer"),
        "{config}"
    );

    let text = fs::read_to_string(tiny().join("tokenizer.json")).unwrap();
    let random = text.replace("\"dropout\": null", "\"dropout\": 0.1");
    let message = load(
        model_with("tokenizer.json", Some(&random)).path(),
        VOCAB_SIZE,
    );
    assert!(message.contains("dropout"), "{message}");
}

/// Bytes of a tokenizer file changed one at a time: an error or a working tokenizer, never a panic.
#[test]
fn a_damaged_tokenizer_never_panics() {
    let text = fs::read(tiny().join("tokenizer.json")).unwrap();
    let model = model_with("tokenizer.json", None);
    let path = model.path().join("tokenizer.json");
    for round in 0..60usize {
        let mut damaged = text.clone();
        let at = round.wrapping_mul(7919) % 2600; // the part before the vocabulary
        match round % 3 {
            0 => damaged[at] = b"0\"]}{,:9"[round / 3 % 8],
            1 => damaged.truncate(damaged.len() * round / 60),
            _ => drop(damaged.drain(at..at + 1 + round % 40)),
        }
        fs::write(&path, damaged).unwrap();
        if let Ok(tokenizer) = TextTokenizer::load(model.path(), VOCAB_SIZE) {
            let _ = tokenizer.encode_row("Hello, <|pad|> world 12");
        }
    }
    // Fields with indices outside their tables.
    let json: Value = serde_json::from_slice(&text).unwrap();
    let changed = |change: fn(&mut Value)| {
        let mut json = json.clone();
        change(&mut json);
        fs::write(&path, json.to_string()).unwrap();
        if let Ok(tokenizer) = TextTokenizer::load(model.path(), VOCAB_SIZE) {
            let _ = tokenizer.encode_row("Hello, <|pad|> world 12");
        }
    };
    changed(|j| j["post_processor"]["processors"][1]["single"] = Value::Array(vec![]));
    changed(|j| j["post_processor"]["processors"][1]["special_tokens"] = serde_json::json!({}));
    changed(|j| j["model"]["merges"] = serde_json::json!([["!", "\""]]));
    changed(|j| j["model"]["unk_token"] = "nowhere".into());
    changed(|j| j["added_tokens"][0]["id"] = 4_000_000_000u64.into());
    changed(|j| {
        j["model"] = serde_json::json!({"type": "Unigram", "unk_id": 9, "vocab": [["a", 0.0]]})
    });
}
