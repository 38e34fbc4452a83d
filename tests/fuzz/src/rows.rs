//! Bytes as rows and their processing: JSONL and JSON, parquet, chat templates.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use espalier_data::{ChatTemplate, DataOptions, Dataset, GenerationPrompt, Message, OnBadRow, Vocabulary};
use serde_json::json;

use crate::place::{first_line, place, tiny, write};

/// Reads rows; the words of the first line are options: `json` for one array, `drop` to skip bad
/// rows, and the name of a shipped chat template.
pub fn rows(data: &[u8]) {
    let (how, rows) = first_line(data);
    let has = |word: &str| {
        how.split(|&byte| byte == b' ')
            .any(|one| one == word.as_bytes())
    };
    let name = match has("json") {
        true => "rows.json",
        false => "rows.jsonl",
    };
    let path = place(|_| ()).join(name);
    write(&path, rows);
    let mut options = options(&path);
    if has("drop") {
        options.on_bad_row = OnBadRow::Drop;
    }
    let shipped = ChatTemplate::shipped();
    let template = shipped.split(", ").find(|name| has(name));
    options.chat_template = template.map(str::to_owned);
    read(&options);
}

/// Reads a parquet file of rows.
pub fn parquet(data: &[u8]) {
    let path = place(|_| ()).join("rows.parquet");
    write(&path, data);
    read(&options(&path));
}

/// Renders a conversation with a foreign template, in the process that limits it.
pub fn chat_template(data: &[u8]) {
    let path = place(|_| ()).join("template.jinja");
    write(&path, data);
    let name = path.to_str().expect("a path of letters");
    let Ok(Some(template)) = ChatTemplate::open(&tiny(), Some(name)) else {
        return;
    };
    let mut calls = Message::new("assistant", "");
    let call = json!([{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]);
    calls.other.insert("tool_calls".to_owned(), call);
    let messages = [
        Message::new("system", "Be brief."),
        Message::new("user", "One and one?"),
        calls,
        Message::new("assistant", "Two."),
    ];
    for generation_prompt in [GenerationPrompt::Omitted, GenerationPrompt::Added] {
        if let Err(error) = template.render(&messages, generation_prompt) {
            assert!(!error.to_string().is_empty());
        }
    }
}

fn options(path: &Path) -> DataOptions {
    DataOptions {
        files: vec![PathBuf::from(path)],
        shuffle: false,
        max_seq_len: 64,
        ..DataOptions::default()
    }
}

/// Reads all rows, and the sequences made from them.
fn read(options: &DataOptions) {
    static VOCABULARY: LazyLock<Vocabulary> = LazyLock::new(|| Vocabulary::new(tiny(), 512));
    match Dataset::open(options, &VOCABULARY, 42, &mut |_| ()) {
        Ok((rows, _)) => {
            for index in 0..rows.num_sequences() {
                let sequence = rows.sequence(index).expect("it was just read");
                assert_eq!(sequence.labels().count(), rows.length(index));
                rows.origin(index).expect("every row comes from a file");
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
