//! `host data show` -> the rows with trained tokens marked, or why they cannot be trained.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/llama/tiny")
}

fn show(rows: &str, arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().expect("a folder");
    let file = directory.path().join("f.jsonl");
    std::fs::write(&file, rows).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_host"));
    command.args(["data", "show", "--model"]).arg(model());
    command.arg("--data").arg(&file).args(arguments);
    command.output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[test]
fn trained_tokens_are_marked() {
    let row = r#"{"prompt": "In the\n", "completion": " beginning \u001b[31m"}"#;
    let shown = show(row, &[]);
    let out = text(&shown.stdout);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    assert!(
        out.contains("f.jsonl:1: ") && out.contains("1 sequences of 1 rows"),
        "{out}"
    );
    let body = out.lines().skip(1).collect::<Vec<_>>().join("\n");
    let whole = body.replace('│', "");
    assert!(whole.contains("In the⏎\n« beginning ␛[31m"), "{out}");
    assert_eq!(body.matches('«').count(), 1, "{out}");
    // Each token by itself: ` the` is one, ` beginning` is none.
    assert!(body.contains("I│n│ the│⏎\n« be│g│in│n│ing│ │␛│[│"), "{out}");
    assert!(!out.contains('\u{1b}'), "no colours in a pipe: {out:?}");
    let cut = show(row, &["--set", "data.max_seq_len=8"]);
    let out = text(&cut.stdout);
    assert!(
        out.contains("8 tokens, cut from") && out.contains("more tokens are cut off"),
        "{out}"
    );
}

#[test]
fn json_has_the_same_tokens() {
    let rows = r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}"#;
    let shown = show(
        &format!("{rows}\n{rows}\n"),
        &["--json", "--rows", "1", "--chat-template", "chatml"],
    );
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    let found: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    assert_eq!(found["rows"].as_array().map(Vec::len), Some(1));
    assert_eq!(found["counts"]["rows"], 2);
    let tokens = found["rows"][0]["tokens"].as_array().expect("tokens");
    let pieces = |trained: bool| -> String {
        let chosen = tokens.iter().filter(|token| token["trained"] == trained);
        chosen
            .map(|token| token["text"].as_str().expect("text"))
            .collect()
    };
    // The tiny tokenizer has no token for ChatML's end.
    assert_eq!(pieces(true), "b<|im_end|>\n");
    assert_eq!(
        pieces(false),
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn rows_without_trained_tokens_are_refused() {
    let rows = r#"{"messages": [{"role": "user", "content": "a"}]}"#;
    let refused = show(rows, &["--chat-template", "chatml"]);
    assert_eq!(refused.status.code(), Some(3));
    let error = text(&refused.stderr);
    assert!(
        error.contains("no token would be trained: of 1 rows, 1 have no trained token"),
        "{error}"
    );
    let unknown = show(rows, &["--chat-template", "chatlm"]);
    assert_eq!(unknown.status.code(), Some(3));
    assert!(
        text(&unknown.stderr).contains("chatml"),
        "{}",
        text(&unknown.stderr)
    );
}

#[test]
fn rows_of_an_array_are_named_by_their_number() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("array.json");
    // Both rows begin in the first line; the second is bad in the second file.
    let rows = |second: &str| format!("[{{\"input_ids\": [5, 300, 301]}}, {second}]");
    let show = |rows: &str| {
        std::fs::write(&file, rows).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_host"));
        command.args(["data", "show", "--model"]).arg(model());
        command
            .arg("--data")
            .arg(&file)
            .output()
            .expect("it starts")
    };
    let out = text(&show(&rows("{\"input_ids\": [6, 7]}")).stdout);
    assert!(out.contains("array.json row 1: 3 tokens"), "{out}");
    assert!(out.contains("array.json row 2: 2 tokens"), "{out}");
    let refused = text(&show(&rows("{\"input_ids\": 3}")).stderr);
    assert!(
        refused.contains("array.json row 2: field `input_ids` is the number 3"),
        "{refused}"
    );
}
