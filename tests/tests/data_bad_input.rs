//! Rows that cannot be trained on -> the error that names file and line.

mod row_damage;

use std::fs;
use std::path::Path;

use espalier_data::{
    DataOptions, Dataset, Format, OnBadRow, RowNumber, TooLong, TrainOn, Vocabulary,
};
use espalier_tests::rows::{VOCAB_SIZE, load, options, read, refused};

use row_damage::{damaged, draws};

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
}

#[test]
fn bad_token_ids_name_file_and_line() {
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
fn faults_of_an_array_name_the_row_or_the_line_of_broken_json() {
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
            "f.json row 2: field `text` is the number 3",
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
    for name in ["f.csv", "f"] {
        let message = refused(name, "x");
        assert!(
            message.contains("expected .jsonl, .json or .parquet"),
            "{message}"
        );
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
fn formats_are_detected_forced_and_refused() {
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
        chat.contains("f.jsonl has conversations") && chat.contains("chatml, zephyr"),
        "{chat}"
    );
    let assistant = read("f.jsonl", r#"{"text": "b"}"#, |o| {
        o.train_on = TrainOn::Assistant
    });
    let message = assistant.err().expect("refused");
    assert!(message.contains("needs rows with roles"), "{message}");
}

#[test]
fn data_without_trained_tokens_is_refused() {
    let rows = "{\"input_ids\": [1, 2], \"labels\": [1, -100]}\n{\"input_ids\": [1]}\n";
    let message = refused("f.jsonl", rows);
    assert!(
        message.starts_with("no token would be trained: of 2 rows, 2 have no trained token"),
        "{message}"
    );
    // The trained part is after the cut.
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
fn bad_conversations_name_the_turn() {
    let chatml = |o: &mut DataOptions| o.chat_template = Some("chatml".into());
    let message = |messages: &str| {
        let good = r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}"#;
        let rows = format!("{good}\n{{\"messages\": {messages}}}\n");
        read("f.jsonl", rows, chatml).err().expect("refused")
    };
    for (messages, expected) in [
        (
            "[]",
            "f.jsonl:2: field `messages` is empty; expected at least one message",
        ),
        (
            "\"a\"",
            "f.jsonl:2: field `messages` is the string \"a\"; expected an array of messages",
        ),
        (
            "[3]",
            "f.jsonl:2: field `messages`[0] is the number 3; expected an object",
        ),
        (
            r#"[{"role": "user", "content": "a"}, {"role": "asistant", "content": "b"}]"#,
            "f.jsonl:2: field `messages`[1].role is \"asistant\", which no template knows",
        ),
        (
            r#"[{"role": 1, "content": "a"}]"#,
            "f.jsonl:2: field `messages`[0].role is the number 1",
        ),
        (
            r#"[{"role": "user"}]"#,
            "f.jsonl:2: field `content` is missing; the row has `role`",
        ),
        (
            r#"[{"content": "a"}]"#,
            "f.jsonl:2: field `role` is missing; the row has `content`",
        ),
        (
            r#"[{"role": "user", "content": null}]"#,
            "f.jsonl:2: field `messages`[0].content is null; expected a string",
        ),
        (
            r#"[{"role": "user", "content": [{"type": "image"}]}]"#,
            "f.jsonl:2: field `messages`[0].content is an array; expected a string",
        ),
    ] {
        let found = message(messages);
        assert!(found.starts_with(expected), "{messages}: {found}");
    }
    let pair = |o: &mut DataOptions| o.format = Format::PromptCompletion;
    let mixed = "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": [], \"completion\": []}";
    let found = read("f.jsonl", mixed, pair).err().expect("refused");
    assert!(
        found.contains(
            "f.jsonl:2: field `prompt` is an array; expected a string, as in the first row"
        )
    );
}

#[test]
fn bad_rows_are_dropped_and_counted_on_request() {
    let drop = |o: &mut DataOptions| o.on_bad_row = OnBadRow::Drop;
    let good = "{\"text\": \"good\"}\n".repeat(6);
    let bad: [&[u8]; 5] = [
        b"{\"text\": }\n",
        b"{\"text\": \"\xff\"}\n",
        b"{\"text\": 3}\n",
        b"{\"txt\": \"a\"}\n",
        b"{\"text\": \"cut off",
    ];
    // The first row is bad: the next one determines the format.
    let rows = [bad[0], good.as_bytes(), &bad[1..].concat()].concat();
    let kept = read("f.jsonl", &rows, drop).unwrap();
    let counts = kept.counts();
    assert_eq!((kept.num_sequences(), counts.rows), (6, 11));
    let dropped = counts.dropped;
    assert_eq!((dropped.json, dropped.utf8, dropped.fields), (2, 1, 2));
    assert_eq!(dropped.total(), 5);
    let text = counts.to_string();
    assert!(
        text.contains("6 sequences of 11 rows") && text.contains("2 left out: wrong fields"),
        "{text}"
    );
    assert_eq!(kept.origin(0).unwrap().place.number, RowNumber::Line(2));
    assert!(
        read("f.jsonl", &rows, |_| ())
            .err()
            .expect("refused")
            .starts_with("f.jsonl:1: ")
    );
    let most = read("f.jsonl", bad.concat(), drop).err().expect("refused");
    assert!(
        most.starts_with(
            "5 of 5 rows were left out as bad, more than half; the first: f.jsonl:1: invalid JSON"
        ),
        "{most}"
    );
    // A fault of more than one row remains an error.
    assert!(
        read("f.jsonl", "", drop)
            .err()
            .expect("refused")
            .contains("has no row")
    );
    let cut = read("f.json", "[{\"text\": \"a\"}, {\"text", drop)
        .err()
        .expect("refused");
    assert!(cut.contains("the file ends inside"), "{cut}");
}

#[test]
fn rows_of_more_than_64_mib_are_named_or_skipped() {
    let mut rows = b"{\"text\": \"a\"}\n{\"text\": \"".to_vec();
    rows.resize(rows.len() + (64 << 20), b'x');
    rows.extend(b"\"}\n{\"text\": \"b\"}\n");
    let message = refused("f.jsonl", &rows);
    assert!(
        message.starts_with("f.jsonl:2: the row has more than 67108864 bytes"),
        "{message}"
    );
    let kept = read("f.jsonl", &rows, |o| o.on_bad_row = OnBadRow::Drop).unwrap();
    assert_eq!((kept.num_sequences(), kept.counts().dropped.long), (2, 1));
    assert_eq!(kept.origin(1).unwrap().place.number, RowNumber::Line(3));
}

/// Rows changed at random places: a dataset or an error with a place, never a panic.
#[test]
fn damaged_rows_never_panic() {
    let sound = r#"[{"input_ids": [1, 2, 3], "labels": [-100, 2, 3]},
 {"input_ids": [4, 5], "note": "\u00e9 \\ \" [{"},
 {"input_ids": [6, 7, 8, 9], "attention_mask": [1, 1, 1, 1]}]"#;
    let mut random = draws();
    let directory = tempfile::tempdir().unwrap();
    let vocabulary = Vocabulary::new(directory.path(), VOCAB_SIZE);
    let mut refusals = 0;
    for round in 0..400 {
        let bytes = damaged(sound, &mut random);
        let path = directory.path().join(["f.json", "f.jsonl"][round % 2]);
        fs::write(&path, bytes).unwrap();
        if let Err(error) = Dataset::load(
            std::slice::from_ref(&path),
            &options(&path),
            &vocabulary,
            &mut |_| (),
        ) {
            refusals += 1;
            let message = error.to_string();
            let place = format!("{}", path.display());
            let counted = message.starts_with("no token would be trained");
            assert!(counted || message.contains(&place), "{message}");
        }
    }
    assert!(refusals > 100, "{refusals}");
}
