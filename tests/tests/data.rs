//! Files and a real tokenizer -> the batches of a run, or the error that names file and line.

use std::fs;
use std::path::{Path, PathBuf};

use espalier_trainer::data::{
    DataError, DataOptions, Dataset, Format, Horizon, Schedule, TextTokenizer, TooLong, TrainOn,
    Vocabulary,
};
use serde_json::Value;
use tempfile::TempDir;

const VOCAB_SIZE: usize = 512;
const END: i32 = 1;

fn tiny() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/llama/tiny")
}

fn vocabulary() -> Vocabulary {
    Vocabulary::new(tiny(), VOCAB_SIZE)
}

/// A directory with one data file.
struct Files {
    directory: TempDir,
    path: PathBuf,
}

fn file(name: &str, content: impl AsRef<[u8]>) -> Files {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    fs::write(&path, content).unwrap();
    Files { directory, path }
}

fn options(path: &Path) -> DataOptions {
    DataOptions {
        files: vec![path.to_path_buf()],
        shuffle: false,
        ..DataOptions::default()
    }
}

fn load(options: &DataOptions) -> Result<Dataset, DataError> {
    Dataset::open(options, &vocabulary(), 42, &mut |_| ()).map(|(train, _)| train)
}

/// Loads `content`, changing the options first.
fn read(
    name: &str,
    content: impl AsRef<[u8]>,
    change: impl FnOnce(&mut DataOptions),
) -> Result<Dataset, String> {
    let files = file(name, content);
    let mut options = options(&files.path);
    change(&mut options);
    let directory = format!("{}/", files.directory.path().display());
    load(&options).map_err(|e| e.to_string().replace(&directory, ""))
}

fn refused(name: &str, content: impl AsRef<[u8]>) -> String {
    read(name, content, |_| ()).err().expect("refused")
}

/// A copy of the tiny model's directory without weights, one file replaced or (without content)
/// removed.
fn model_with(name: &str, content: Option<&str>) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for file in [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ] {
        fs::copy(tiny().join(file), directory.path().join(file)).unwrap();
    }
    match content {
        Some(content) => fs::write(directory.path().join(name), content).unwrap(),
        None => fs::remove_file(directory.path().join(name)).unwrap(),
    }
    directory
}

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
        lines += &serde_json::json!({ "text": text }).to_string();
        lines += "\n";
        let ended = expected.last() == Some(&END);
        expected_rows.push([&expected[..], &[END][usize::from(ended)..]].concat());
    }
    assert!(cases.len() >= 4);
    let data = read("cases.jsonl", lines, |_| ()).unwrap();
    assert_eq!(data.num_sequences(), cases.len());
    for (row, expected) in expected_rows.iter().enumerate() {
        let sequence = data.sequence(row);
        assert_eq!(sequence.tokens, expected);
        let labels: Vec<i32> = sequence.labels().collect();
        let shifted = [&expected[1..], &[-100]].concat();
        assert_eq!(labels, shifted, "every token is trained, the end token too");
    }
}

#[test]
fn the_end_token_is_added_once() {
    let rows = r#"{"text": "a"}
{"text": "a<|end_of_text|>"}
{"text": ""}
"#;
    let data = read("f.jsonl", rows, |_| ()).unwrap();
    assert_eq!(data.sequence(0).tokens, data.sequence(1).tokens);
    assert_eq!(data.sequence(2).tokens, [0, END]);
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
    // A row of the end token alone has nothing before it to predict it from.
    let files = file("f.jsonl", "{\"text\": \"\"}\n{\"text\": \"ab\"}\n");
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

/// Bytes of a tokenizer file changed one at a time: an error or a tokenizer that works, never a
/// panic.
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
    // Fields that point outside of their tables.
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

#[test]
fn pre_tokenized_rows_need_no_tokenizer_and_stay_as_they_are() {
    let rows = r#"{"input_ids": [5, 6, 7]}
{"input_ids": [8, 9], "labels": [-100, 9], "note": "ignored"}
"#;
    let files = file("f.jsonl", rows);
    let vocabulary = Vocabulary::new(files.directory.path(), VOCAB_SIZE);
    let (data, eval) = Dataset::open(&options(&files.path), &vocabulary, 1, &mut |_| ()).unwrap();
    assert!(eval.is_none() && vocabulary.loaded_tokenizer().is_none());
    assert_eq!(data.sequence(0).tokens, [5, 6, 7]);
    assert_eq!(data.sequence(1).labels().collect::<Vec<_>>(), [9, -100]);
    assert_eq!(data.files()[0].format, Format::InputIds);
    assert_eq!(
        data.place(1).to_string(),
        format!("{}:2", files.path.display())
    );
    assert_eq!(data.files()[0].rows, 2);
    assert_eq!(data.files()[0].bytes, rows.len() as u64);
    assert!(data.host_bytes() > 0);
}

#[test]
fn an_array_file_equals_a_line_file() {
    let rows = r#"{"text": "one, \"two\""}
{"text": "]}, {["}

{"text": "three"}"#;
    let array = r#"[ {"text": "one, \"two\""},
        {"text": "]}, {["} , {
        "text":
        "three" } ]"#;
    let lines = read("f.jsonl", rows, |_| ()).unwrap();
    for other in [
        read("f.json", array, |_| ()).unwrap(),
        read("f.JSON", rows, |_| ()).unwrap(),
        read("f.jsonl", rows.replace('\n', "\r\n"), |_| ()).unwrap(),
        read("f.jsonl", format!("\u{FEFF}{rows}\n\n \n"), |_| ()).unwrap(),
    ] {
        assert_eq!(other.num_sequences(), 3);
        for row in 0..3 {
            assert_eq!(other.sequence(row).tokens, lines.sequence(row).tokens);
        }
    }
    assert_eq!(lines.place(2).line, 4);
}

#[test]
fn the_hash_is_that_of_the_bytes() {
    // sha256sum of the same bytes.
    let data = read("f.jsonl", "{\"text\": \"abc\"}\n", |_| ()).unwrap();
    assert_eq!(
        data.files()[0].sha256,
        "b3b44c015f2cfd9f6727c04576599da0309a65ffc71323b91e87b469177983c2"
    );
}

#[test]
fn bad_rows_name_file_and_line() {
    let good = "{\"text\": \"good\"}\n";
    let after_good = |bad: &[u8]| refused("f.jsonl", [good.as_bytes(), b"\n", bad].concat());
    for (bad, expected) in [
        (
            &b"{\"text\": }\n"[..],
            "f.jsonl:3: invalid JSON at column 10: expected value",
        ),
        (
            b"{\"text\": \"a\"\n",
            "f.jsonl:3: invalid JSON at column 12: EOF",
        ),
        (
            b"{\"text\": \"a\"",
            "f.jsonl:3: the file ends inside this row",
        ),
        (
            b"{\"text\": \"a\xe6\x97",
            "f.jsonl:3: the file ends inside this row",
        ),
        (
            b"{\"text\": \"a\xff\"}\n",
            "f.jsonl:3: byte 12 of the row is not valid UTF-8",
        ),
        (b"{\"text\": \"\\ud800\"}\n", "f.jsonl:3: invalid JSON"),
        (b"{\"text\": \"a\0\"}\n", "f.jsonl:3: invalid JSON"),
        (
            b"{\"text\": 3}\n",
            "f.jsonl:3: field `text` is the number 3; expected a string",
        ),
        (
            b"{\"text\": null}\n",
            "f.jsonl:3: field `text` is null; expected a string",
        ),
        (
            b"{\"txt\": \"a\"}\n",
            "f.jsonl:3: field `text` is missing; the row has `txt`",
        ),
        (
            b"{\"input_ids\": [1]}\n",
            "f.jsonl:3: field `text` is missing; the row has `input_ids`",
        ),
        (
            b"{}\n",
            "f.jsonl:3: field `text` is missing; the row has no fields",
        ),
        (
            b"\"text\"\n",
            "f.jsonl:3: the row is the string \"text\"; expected an object",
        ),
        (
            b"{\"text\": \"a\"} x\n",
            "f.jsonl:3: invalid JSON at column 15: trailing characters",
        ),
        (
            b"\xEF\xBB\xBF{\"text\": \"a\"}\n",
            "f.jsonl:3: invalid JSON at column 1",
        ),
    ] {
        let message = after_good(bad);
        assert!(
            message.starts_with(expected),
            "{}: {message}",
            String::from_utf8_lossy(bad)
        );
    }
    let deep = after_good("[".repeat(100_000).as_bytes());
    assert!(deep.starts_with("f.jsonl:3: invalid JSON"), "{deep}");
    let utf16: Vec<u8> = good.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let message = refused("f.jsonl", [&[0xFF, 0xFE], &utf16[..]].concat());
    assert!(
        message.starts_with("f.jsonl:1: byte 1 of the row is not valid UTF-8"),
        "{message}"
    );

    let ids = "{\"input_ids\": [1, 2]}\n";
    for (bad, expected) in [
        (
            "{\"input_ids\": [1, 512]}",
            "f.jsonl:2: input_ids[1] = 512 is outside the model's vocabulary; expected 0 to 511",
        ),
        (
            "{\"input_ids\": [-3]}",
            "f.jsonl:2: input_ids[0] = -3 is outside",
        ),
        (
            "{\"input_ids\": [1e300]}",
            "f.jsonl:2: input_ids[0] = 1e+300 is outside",
        ),
        (
            "{\"input_ids\": [1, 2], \"labels\": [1]}",
            "f.jsonl:2: labels has 1 entries; expected 2",
        ),
        (
            "{\"input_ids\": [true]}",
            "f.jsonl:2: field `input_ids`[0] is true; expected an integer",
        ),
    ] {
        let message = refused("f.jsonl", format!("{ids}{bad}\n"));
        assert!(message.starts_with(expected), "{bad}: {message}");
    }
}

#[test]
fn faults_of_an_array_name_the_line_inside_the_row() {
    for (array, expected) in [
        (
            "[\n{\"text\": \"a\"},\n{\"text\":\n3 4}]",
            "f.json:4: invalid JSON at column 3",
        ),
        (
            "[{\"text\": \"a\"}, {\"text\": }]",
            "f.json:1: invalid JSON at column 26",
        ),
        (
            "[\n{\"text\": \"a\"},\n{\"text\": 3}]",
            "f.json:3: field `text` is the number 3",
        ),
        (
            "[\n{\"text\": \"a\"},\n{\"text\": \"b",
            "f.json:3: the file ends inside this row",
        ),
        (
            "[\n{\"text\": \"a\"}\n",
            "f.json:3: the file ends inside this row",
        ),
        (
            "[\n{\"text\": \"a\"}\n{\"text\": \"a\"}]",
            "f.json:3: invalid JSON at column 1: expected `,` or `]`",
        ),
        (
            "[{\"text\": \"a\"}]\n]",
            "f.json:2: invalid JSON at column 1: expected the file's end",
        ),
        ("[]", "f.json has no row"),
        (
            "{\"data\": [{\"text\": \"a\"}]}",
            "f.json:1: no known format has the fields `data`",
        ),
    ] {
        let message = refused("f.json", array);
        assert!(message.starts_with(expected), "{array}: {message}");
    }
}

#[test]
fn files_that_cannot_be_read_are_named() {
    assert!(refused("f.jsonl", "").starts_with("f.jsonl has no row"));
    assert!(refused("f.jsonl", "\n \r\n").starts_with("f.jsonl has no row"));
    for name in ["f.parquet", "f.csv", "f"] {
        let message = refused(name, "x");
        assert!(message.contains("expected .jsonl or .json"), "{message}");
    }
    let missing = options(Path::new("nowhere/rows.jsonl"));
    let message = load(&missing).err().expect("refused").to_string();
    assert!(
        message.starts_with("cannot read nowhere/rows.jsonl"),
        "{message}"
    );
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("rows.jsonl");
    fs::create_dir(&folder).unwrap();
    let message = load(&options(&folder)).err().expect("refused").to_string();
    assert!(message.starts_with("cannot read"), "{message}");
    let none = load(&DataOptions::default())
        .err()
        .expect("refused")
        .to_string();
    assert!(none.contains("no data file is given"), "{none}");
}

#[test]
fn formats_are_told_forced_and_refused() {
    let alpaca = r#"{"instruction": "a", "output": "b", "text": "c"}"#;
    let message = refused("f.jsonl", alpaca);
    assert!(
        message.starts_with("f.jsonl:1: the fields fit several formats"),
        "{message}"
    );
    let forced = read("f.jsonl", alpaca, |o| o.format = Format::Text).unwrap();
    assert_eq!(forced.num_sequences(), 1);
    let renamed = |o: &mut DataOptions| drop(o.fields.insert("text".into(), "output".into()));
    assert!(read("f.jsonl", r#"{"output": "b"}"#, renamed).is_ok());
    let chat = refused("f.jsonl", r#"{"messages": []}"#);
    assert!(
        chat.contains("rows of format chat are not supported in this version")
            && chat.contains("supported are text"),
        "{chat}"
    );
    let assistant = read("f.jsonl", r#"{"text": "b"}"#, |o| {
        o.train_on = TrainOn::Assistant
    });
    let message = assistant.err().expect("refused");
    assert!(message.contains("needs rows with roles"), "{message}");
}

#[test]
fn nothing_to_train_on_is_refused() {
    let rows = "{\"input_ids\": [1, 2], \"labels\": [1, -100]}\n{\"input_ids\": [1]}\n";
    let message = refused("f.jsonl", rows);
    assert!(
        message.starts_with("no token would be trained: of 2 rows, 2 have no trained token"),
        "{message}"
    );
    // The trained part lies behind the cut.
    let rows = "{\"input_ids\": [1, 2, 3], \"labels\": [-100, -100, 3]}\n";
    let cut = read("f.jsonl", rows, |o| o.max_seq_len = 2);
    assert!(
        cut.err()
            .expect("refused")
            .contains("no token would be trained")
    );
    let left_out = read("f.jsonl", rows, |o| {
        o.max_seq_len = 2;
        o.too_long = TooLong::Drop;
    });
    assert!(left_out.err().expect("refused").contains("1 are too long"));
}

#[test]
fn long_rows_are_counted() {
    let rows = "{\"text\": \"In the beginning God created\"}\n{\"text\": \"a\"}\n";
    let cut = read("f.jsonl", rows, |o| o.max_seq_len = 5).unwrap();
    assert_eq!(cut.sequence(0).tokens, [0, 43, 80, 261, 297]); // without the end token
    assert_eq!((cut.counts().truncated, cut.counts().too_long), (1, 0));
    let dropped = read("f.jsonl", rows, |o| {
        o.max_seq_len = 5;
        o.too_long = TooLong::Drop;
    })
    .unwrap();
    assert_eq!((dropped.num_sequences(), dropped.counts().too_long), (1, 1));
    assert_eq!(dropped.place(0).line, 2);
    let error = read("f.jsonl", rows, |o| {
        o.max_seq_len = 5;
        o.too_long = TooLong::Error;
    });
    let message = error.err().expect("refused");
    assert!(message.starts_with("f.jsonl:1: the row has"), "{message}");
}

#[test]
fn many_rows_keep_their_order_and_the_first_fault_is_told() {
    let mut rows = String::new();
    for row in 0..6000 {
        rows += &format!("{{\"text\": \"row {row}\"}}\n");
    }
    let files = file("f.jsonl", &rows);
    let mut reports: Vec<(u64, u64)> = Vec::new();
    let (data, _) = Dataset::open(&options(&files.path), &vocabulary(), 1, &mut |p| {
        assert_eq!(p.total_bytes, rows.len() as u64);
        reports.push((p.rows, p.bytes));
    })
    .unwrap();
    assert!(reports.len() > 2 && reports.is_sorted(), "{reports:?}");
    assert_eq!(*reports.last().unwrap(), (6000, rows.len() as u64));
    let tokenizer = TextTokenizer::load(&tiny(), VOCAB_SIZE).unwrap();
    for row in (0..6000).step_by(457) {
        let expected = tokenizer.encode_row(&format!("row {row}")).unwrap();
        assert_eq!(data.sequence(row).tokens, expected);
        assert_eq!(data.place(row).line, row as u64 + 1);
    }
    let broken = rows
        .replace("\"row 5000\"", "5")
        .replace("\"row 4321\"", "6")
        .replace("\"row 4400\"", "7");
    let message = refused("f.jsonl", broken);
    assert!(
        message.starts_with("f.jsonl:4322: field `text` is the number 6"),
        "{message}"
    );
}

#[test]
fn evaluation_rows_come_from_files_or_a_split() {
    let rows: String = (0..10)
        .map(|i| format!("{{\"input_ids\": [{i}, {i}]}}\n"))
        .collect();
    let files = file("f.jsonl", &rows);
    let held_out = files.directory.path().join("held_out.jsonl");
    fs::write(&held_out, "{\"text\": \"abc\"}\n").unwrap();
    let mut options = options(&files.path);
    options.eval_files = vec![held_out];
    let (train, eval) = Dataset::open(&options, &vocabulary(), 1, &mut |_| ()).unwrap();
    assert_eq!(
        (train.num_sequences(), eval.unwrap().num_sequences()),
        (10, 1)
    );
    options.eval_files.clear();
    options.eval_split = Some(0.3);
    let (train, eval) = Dataset::open(&options, &vocabulary(), 1, &mut |_| ()).unwrap();
    let eval = eval.unwrap();
    assert_eq!((train.num_sequences(), eval.num_sequences()), (7, 3));
    let schedule = Schedule::evaluation(&eval, &options).unwrap();
    assert_eq!(schedule.total_steps(), 1);
    assert_eq!(schedule.step(0).trained_tokens, 3);
}

/// Text files -> packed micro-batches, once through.
#[test]
fn a_run_sees_every_row_once_an_epoch() {
    let rows: String = (0..23)
        .map(|i| format!("{{\"text\": \"{}\"}}\n", "ab ".repeat(i % 7)))
        .collect();
    let data = read("f.jsonl", rows, |_| ()).unwrap();
    let options = DataOptions {
        batch_size: 5,
        pack_tokens: Some(24),
        ..DataOptions::default()
    };
    let horizon = Horizon {
        epochs: 2,
        max_steps: None,
    };
    let schedule = Schedule::training(&data, &options, 3, horizon).unwrap();
    assert_eq!(schedule.total_steps(), 10);
    let (mut tokens, mut trained) = (0, 0);
    for k in 0..10 {
        let step = schedule.step(k);
        for m in &step.micro_batches {
            assert!(m.num_tokens() <= schedule.extent().max_tokens);
            assert!(m.num_tokens() <= 24);
            assert_eq!(*m.cu_seqlens.last().unwrap() as usize, m.num_tokens());
            tokens += m.num_tokens() as u64;
        }
        trained += step.trained_tokens as u64;
    }
    let counts = data.counts();
    assert_eq!(
        (tokens, trained),
        (2 * counts.tokens, 2 * counts.trained_tokens)
    );
}

/// Rows changed at random places: a dataset or an error with a place, never a panic.
#[test]
fn damaged_rows_never_panic() {
    let sound = r#"[{"input_ids": [1, 2, 3], "labels": [-100, 2, 3]},
 {"input_ids": [4, 5], "note": "\u00e9 \\ \" [{"},
 {"input_ids": [6, 7, 8, 9], "attention_mask": [1, 1, 1, 1]}]"#;
    let mut state = 1u64;
    let mut random = |below: usize| {
        // Knuth's MMIX generator; its high bits are good enough here.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let directory = tempfile::tempdir().unwrap();
    let vocabulary = Vocabulary::new(directory.path(), VOCAB_SIZE);
    let mut refusals = 0;
    for round in 0..400 {
        let mut bytes = sound.as_bytes().to_vec();
        for _ in 0..=random(3) {
            let at = random(bytes.len());
            match random(4) {
                0 => bytes[at] ^= 1 << random(8),
                1 => bytes[at] = b"[]{},:\"\\0-9e\n "[random(14)],
                2 => bytes.truncate(at.max(1)),
                _ => drop(bytes.drain(at..(at + random(9)).min(bytes.len().max(at + 1)))),
            }
            if bytes.is_empty() {
                break;
            }
        }
        let path = directory.path().join(["f.json", "f.jsonl"][round % 2]);
        fs::write(&path, bytes).unwrap();
        if let Err(error) =
            Dataset::load(&[path.clone()], &options(&path), &vocabulary, &mut |_| ())
        {
            refusals += 1;
            let message = error.to_string();
            let place = format!("{}", path.display());
            let counted = message.starts_with("no token would be trained");
            assert!(counted || message.contains(&place), "{message}");
        }
    }
    assert!(refusals > 100, "{refusals}");
}
