//! Rows that cannot be trained on -> the error that names file and line.

use std::fs;
use std::path::Path;

use espalier_tests::rows::{VOCAB_SIZE, load, options, read, refused};
use espalier_trainer::data::{DataOptions, Dataset, Format, TooLong, TrainOn, Vocabulary};

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
