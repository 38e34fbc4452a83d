//! Rows with tools -> the same ids and masks as transformers, or why the template cannot use them.

use std::fs;
use std::path::{Path, PathBuf};

use espalier_data::{DataOptions, Dataset, OnBadRow, Tools, UNTRAINED, Vocabulary};
use espalier_tests::rows::options;
use serde_json::{Value, json};
use tempfile::TempDir;

const VOCAB_SIZE: usize = 512;

fn golden(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.join("golden/chat").join(name)
}

/// A model's directory with ChatML's tokens and this template.
fn model(template: &Value) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::copy(
        golden("bytes.json"),
        directory.path().join("tokenizer.json"),
    )
    .unwrap();
    let config = json!({"eos_token": "<|im_end|>", "chat_template": template});
    let path = directory.path().join("tokenizer_config.json");
    fs::write(path, config.to_string()).unwrap();
    directory
}

fn load(
    model: &TempDir,
    rows: &[Value],
    change: impl FnOnce(&mut DataOptions),
) -> Result<Dataset, String> {
    let path = model.path().join("rows.jsonl");
    let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
    fs::write(&path, lines).unwrap();
    let mut options = options(&path);
    change(&mut options);
    let vocabulary = Vocabulary::new(model.path(), VOCAB_SIZE);
    Dataset::load(&options.files.clone(), &options, &vocabulary, &mut |_| ())
        .map_err(|e| e.to_string())
}

fn refused(model: &TempDir, rows: &[Value]) -> String {
    load(model, rows, |_| ()).err().expect("refused")
}

fn cases() -> Value {
    serde_json::from_str(&fs::read_to_string(golden("tools.json")).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<i32> {
    let numbers = value.as_array().unwrap().iter();
    numbers.map(|n| n.as_i64().unwrap() as i32).collect()
}

#[test]
fn tools_calls_and_results_are_written_as_by_transformers() {
    let cases = cases();
    let rows = cases["rows"].as_array().unwrap();
    // The same tools as the JSON of the list in a string.
    let as_text = rows.iter().map(|row| {
        let mut row = row.clone();
        if !row["tools"].is_null() {
            row["tools"] = Value::String(row["tools"].to_string());
        }
        row
    });
    let as_text: Vec<Value> = as_text.collect();
    for key in ["template", "tagged"] {
        let model = model(&cases[key]);
        for rows in [rows, &as_text] {
            let dataset = load(&model, rows, |_| ()).unwrap();
            assert_eq!(dataset.num_sequences(), rows.len());
            for (index, result) in cases["results"].as_array().unwrap().iter().enumerate() {
                let sequence = dataset.sequence(index).unwrap();
                assert_eq!(sequence.tokens, numbers(&result["ids"]), "{key} {index}");
                let labels = sequence.labels().enumerate();
                // A label is stored with the token before the learned one.
                let trained = labels.filter(|(_, label)| *label != UNTRAINED);
                let trained: Vec<i32> = trained.map(|(at, _)| at as i32 + 1).collect();
                let runs = result["trained"].as_array().unwrap().iter().map(numbers);
                let expected: Vec<i32> = runs.flat_map(|run| run[0]..run[1]).collect();
                assert_eq!(trained, expected, "{key} {index}");
            }
        }
    }
}

#[test]
fn tools_that_a_template_does_not_write_are_refused() {
    let cases = cases();
    let with_tools = &cases["rows"][2];
    let chatml = json!(
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + (m.content or '') + '<|im_end|>\n' }}{% endfor %}\
         {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    );
    let model = model(&chatml);
    let plain = &cases["rows"][3];
    let message = refused(&model, &[plain.clone(), with_tools.clone()]);
    assert!(
        message.contains("rows.jsonl:2: its tools (`get_time`) would be ignored")
            && message.contains("data.tools = \"ignore\""),
        "{message}"
    );
    let without = |o: &mut DataOptions| o.tools = Tools::Ignore;
    let dataset = load(&model, std::slice::from_ref(with_tools), without).unwrap();
    assert_eq!(dataset.num_sequences(), 1);
    let renamed = |o: &mut DataOptions| drop(o.fields.insert("tools".into(), "none".into()));
    let by_name = load(&model, std::slice::from_ref(with_tools), renamed).unwrap();
    assert_eq!(
        by_name.sequence(0).unwrap().tokens,
        dataset.sequence(0).unwrap().tokens
    );
    let mut calling = cases["rows"][0].clone();
    calling["tools"] = Value::Null;
    let message = refused(&model, std::slice::from_ref(&calling));
    assert!(
        message.contains("rows.jsonl:1: the calls of tools in message 2 would be ignored"),
        "{message}"
    );
    let deaf = json!(
        "{% for m in messages if m.role != 'tool' %}{{ m.role }}{{ m.content }}{{ m.tool_calls }}{% endfor %}"
    );
    let message = refused(&self::model(&deaf), std::slice::from_ref(&calling));
    assert!(
        message.contains("the answer of a tool in message 3 would be ignored"),
        "{message}"
    );
    let dropped = load(&model, &[plain.clone(), calling, plain.clone()], |o| {
        o.on_bad_row = OnBadRow::Drop;
    });
    let counts = dropped.unwrap().counts();
    assert_eq!((counts.kept(), counts.dropped.tools), (2, 1));
}

#[test]
fn a_tools_column_of_another_kind_is_refused() {
    let cases = cases();
    let model = model(&cases["template"]);
    for (tools, expected) in [
        (json!("get_weather"), "field `tools` is the string"),
        (
            json!({"a": 1}),
            "field `tools` is an object; expected a list of objects",
        ),
        (
            json!(["get_weather"]),
            "field `tools`[0] is the string \"get_weather\"; expected an object",
        ),
        (
            json!("{\"a\": 1}"),
            "expected a list of objects, or the JSON of one in a string",
        ),
    ] {
        let mut row = cases["rows"][2].clone();
        row["tools"] = tools;
        let message = refused(&model, &[row]);
        assert!(message.contains(expected), "{message}");
    }
    let plain = json!({"prompt": "a", "completion": "b", "tools": cases["rows"][2]["tools"]});
    let message = refused(&model, &[plain]);
    assert!(
        message.contains(
            "its tools would be ignored: the row is read as plain text; set data.chat_template"
        ),
        "{message}"
    );
}
