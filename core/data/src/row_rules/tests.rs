//! Rows of ids, and the messages for bad ones.

use std::path::Path;

use super::super::error::RowNumber;
use super::super::options::TooLong;
use super::super::reader::RawRow;
use super::super::row::{Outcome, cut, parse};
use super::*;

fn raw(text: &[u8]) -> RawRow {
    RawRow {
        number: RowNumber::Line(3),
        line: 3,
        column: 0,
        bytes: Some(text.to_vec()),
        last: false,
    }
}

fn read(text: &str, change: impl FnOnce(&mut DataOptions)) -> Result<Outcome, String> {
    let mut options = DataOptions::default();
    change(&mut options);
    let place = RowLocation::line(Path::new("f"), 3);
    let rules = RowRules {
        options: &options,
        format: Format::InputIds,
        tokenizer: None,
        template: None,
        split: Vec::new(),
        vocab_size: 10,
    };
    parse(&raw(text.as_bytes()), &place)
        .and_then(|row| rules.read(&row, &place))
        .and_then(|row| cut(row, &options, || place))
        .map_err(|e| e.to_string())
}

fn row(tokens: &[i32], labels: Option<&[i32]>) -> Row {
    let kind = Kind {
        format: Format::InputIds,
        train_on: TrainOn::Completion,
        ..Kind::default()
    };
    Row::new(tokens.to_vec(), labels.map(<[i32]>::to_vec), kind)
}

fn kept(tokens: &[i32], labels: Option<&[i32]>, full: [usize; 2]) -> Outcome {
    let [full_length, full_trained] = full;
    Outcome::Kept(Row {
        full_length,
        full_trained,
        ..row(tokens, labels)
    })
}

#[test]
fn ids_and_labels_are_read_as_they_are() {
    let row = r#"{"input_ids": [0, 9], "labels": [-100, 3], "attention_mask": [1, 1]}"#;
    assert_eq!(
        read(row, |_| ()),
        Ok(kept(&[0, 9], Some(&[-100, 3]), [2, 1]))
    );
    let row = r#"{"input_ids": [0, 9], "labels": null, "other": {}}"#;
    assert_eq!(read(row, |_| ()), Ok(kept(&[0, 9], None, [2, 1])));
    let row = r#"{"ids": [4]}"#;
    let renamed = read(row, |o| {
        o.fields.insert("input_ids".into(), "ids".into());
    });
    assert_eq!(renamed, Ok(kept(&[4], None, [1, 0])));
}

#[test]
fn long_rows_are_cut_left_out_or_refused() {
    let text = r#"{"input_ids": [1, 2, 3], "labels": [1, 2, 3]}"#;
    let under = |too_long| {
        read(text, |o| {
            o.max_seq_len = 2;
            o.too_long = too_long;
        })
    };
    let cut = kept(&[1, 2], Some(&[1, 2]), [3, 2]);
    assert_eq!(under(TooLong::Truncate), Ok(cut));
    let left_out = Outcome::TooLong(row(&[1, 2, 3], Some(&[1, 2, 3])));
    assert_eq!(under(TooLong::Drop), Ok(left_out));
    let refused = under(TooLong::Error).unwrap_err();
    assert!(
        refused.contains("f:3: the row has 3 tokens; data.max_seq_len is 2"),
        "{refused}"
    );
}

#[test]
fn bad_rows_say_what_was_expected() {
    for (row, expected) in [
        ("[1]", "the row is an array; expected an object"),
        ("3", "the row is the number 3; expected an object"),
        (
            "{\"input_ids\": [1,]}",
            "invalid JSON at column 18: trailing comma",
        ),
        (
            "{\"input_ids\":\n [1 2]}",
            "f:4: invalid JSON at column 5: expected `,` or `]`",
        ),
        ("{} {}", "invalid JSON at column 4: trailing characters"),
        (
            r#"{"labels": []}"#,
            "field `input_ids` is missing; the row has `labels`",
        ),
        (
            r#"{"input_ids": "1 2"}"#,
            "field `input_ids` is the string \"1 2\"; expected an array",
        ),
        (r#"{"input_ids": null}"#, "field `input_ids` is null"),
        (
            r#"{"input_ids": [1, "2"]}"#,
            "field `input_ids`[1] is the string \"2\"; expected an integer",
        ),
        (
            r#"{"input_ids": [1.5]}"#,
            "field `input_ids`[0] is the number 1.5; expected an integer",
        ),
        (
            r#"{"input_ids": [10]}"#,
            "input_ids[0] = 10 is outside the model's vocabulary; expected 0 to 9",
        ),
        (r#"{"input_ids": [0, -1]}"#, "input_ids[1] = -1 is outside"),
        (
            r#"{"input_ids": [18446744073709551615]}"#,
            "= 18446744073709551615 is outside",
        ),
        (
            r#"{"input_ids": [99999999999999999999999]}"#,
            "is outside the model's vocabulary",
        ),
        (r#"{"input_ids": [-100]}"#, "input_ids[0] = -100 is outside"),
        (
            r#"{"input_ids": [1], "labels": [-1]}"#,
            "labels[0] = -1 is outside the model's vocabulary; expected 0 to 9, or -100",
        ),
        (
            r#"{"input_ids": [1, 2], "labels": [1]}"#,
            "labels has 1 entries; expected 2",
        ),
        (
            r#"{"input_ids": [1, 2], "attention_mask": [1]}"#,
            "attention_mask has 1 entries; expected 2",
        ),
        (
            r#"{"input_ids": [1, 2], "attention_mask": [1, 0]}"#,
            "attention_mask[1] is 0",
        ),
        (
            r#"{"input_ids": [1], "labels": 3}"#,
            "field `labels` is the number 3; expected an array",
        ),
    ] {
        let message = read(row, |_| ()).expect_err(row);
        assert!(message.starts_with("f:"), "{row}: {message}");
        assert!(message.contains(expected), "{row}: {message}");
    }
}

#[test]
fn bytes_that_are_no_text_are_placed() {
    let place = RowLocation::line(Path::new("f"), 3);
    let message = |row: &RawRow| parse(row, &place).unwrap_err().to_string();
    assert!(message(&raw(b"{\"a\": \"\xff\"}")).starts_with("f:3: byte 8 of the row"));
    let mut cut = raw(b"{\"a\": \"\xe6\x97");
    assert!(message(&cut).contains("not valid UTF-8"));
    cut.last = true;
    assert!(message(&cut).contains("the file ends inside this row"));
    let deep = "[".repeat(100_000);
    assert!(message(&raw(deep.as_bytes())).contains("recursion limit"));
    let surrogate = raw(br#"{"a": "\ud800"}"#);
    assert!(
        message(&surrogate).contains("invalid JSON"),
        "{}",
        message(&surrogate)
    );
}
