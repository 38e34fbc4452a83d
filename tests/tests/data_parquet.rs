//! Parquet files -> the same rows as from lines, or the reason for a refusal.

use std::fs;
use std::path::{Path, PathBuf};

use espalier_data::{DataOptions, Dataset, OnBadRow, RowNumber, TrainOn};
use espalier_tests::rows::{load, options, read, refused};
use serde_json::json;

fn golden(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.join("golden/parquet").join(name)
}

fn parquet(name: &str, change: impl Fn(&mut DataOptions)) -> Result<Dataset, String> {
    let mut options = options(&golden(name));
    change(&mut options);
    load(&options).map_err(|e| e.to_string())
}

fn sequences(dataset: &Dataset) -> Vec<(Vec<i32>, Vec<i32>)> {
    let rows = 0..dataset.num_sequences();
    rows.map(|row| dataset.sequence(row).unwrap())
        .map(|sequence| (sequence.tokens.clone(), sequence.labels().collect()))
        .collect()
}

#[test]
fn rows_equal_those_of_lines() {
    let turn = |role, content| json!({"role": role, "content": content});
    let chats = [
        json!({"messages": [turn("user", "Grüße?"), turn("assistant", "Hallo!\n")]}),
        json!({"messages": [turn("system", ""), turn("user", "2 + 2"), turn("assistant", "4")]}),
    ];
    let ids = [
        json!({"input_ids": [5, 6, 7], "labels": [-100, 6, 7]}),
        json!({"input_ids": [8, 9]}),
        json!({"input_ids": [10, 11, 12, 13], "labels": [-100, -100, 12, 13]}),
    ];
    let text = ["one", "two", "three"].map(|text| json!({"text": text}));
    for (name, rows, times) in [
        ("chat.parquet", &chats[..], 30),
        ("ids.parquet", &ids, 40),
        ("text.parquet", &text, 1),
    ] {
        let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
        let chatml = |o: &mut DataOptions| {
            o.chat_template = Some("chatml".into());
            if name == "chat.parquet" {
                o.train_on = TrainOn::Assistant;
            }
        };
        let expected = read("f.jsonl", lines.repeat(times), chatml).unwrap();
        let found = parquet(name, chatml).unwrap();
        assert_eq!(sequences(&found), sequences(&expected), "{name}");
        let (a, b) = (&found.files()[0], &expected.files()[0]);
        assert_eq!((a.format, a.rows), (b.format, b.rows));
        assert_eq!(a.bytes, fs::metadata(golden(name)).unwrap().len());
        assert_eq!(a.sha256.len(), 64);
        let last = found.origin(found.num_sequences() - 1).unwrap().place;
        assert_eq!(last.number, RowNumber::Row(b.rows));
    }
}

#[test]
fn invalid_rows_are_reported_with_their_number() {
    let nulls = parquet("nulls.parquet", |_| ()).err().expect("refused");
    assert!(
        nulls.contains("nulls.parquet row 2: field `text` is null"),
        "{nulls}"
    );
    let kept = parquet("nulls.parquet", |o| o.on_bad_row = OnBadRow::Drop).unwrap();
    assert_eq!((kept.num_sequences(), kept.counts().dropped.fields), (2, 1));
    let numbers = parquet("numbers.parquet", |_| ()).err().expect("refused");
    assert!(
        numbers.contains(" row 1: field `text` is the number 1.5"),
        "{numbers}"
    );
    let zstd = parquet("zstd.parquet", |_| ()).err().expect("refused");
    assert!(
        zstd.contains("zstd.parquet") && zstd.contains("snappy, gzip or lz4"),
        "{zstd}"
    );
}

/// Files cut short or changed anywhere: the rows, or an error that names the file; never a panic.
#[test]
fn damaged_files_are_refused() {
    assert!(refused("f.parquet", "").starts_with("f.parquet:0: the parquet file cannot be read"));
    assert!(refused("f.parquet", "PAR1").contains("f.parquet:0"));
    let whole = fs::read(golden("ids.parquet")).unwrap();
    for length in (0..whole.len()).step_by(97) {
        let message = refused("f.parquet", &whole[..length]);
        let named = ["f.parquet:0: ", "f.parquet row "];
        let named = named.iter().any(|name| message.starts_with(name));
        assert!(named, "{length}: {message}");
    }
    let mut refusals = 0;
    for at in (0..whole.len()).step_by(13) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        if let Err(message) = read("f.parquet", &bytes, |_| ()) {
            refusals += 1;
            assert!(
                message.starts_with("f.parquet") || message.starts_with("no token would"),
                "{at}: {message}"
            );
        }
    }
    assert!(refusals > 10, "{refusals}");
}
