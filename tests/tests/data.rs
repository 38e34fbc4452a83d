//! Files of rows -> the batches of a run.

use std::fs;

use espalier_data::{
    BatchSchedule, DataOptions, Dataset, Format, Horizon, RowNumber, TextTokenizer, TooLong,
    Vocabulary,
};
use espalier_tests::rows::{VOCAB_SIZE, file, options, read, refused, tiny, vocabulary};

#[test]
fn pre_tokenized_rows_need_no_tokenizer_and_are_unchanged() {
    let rows = r#"{"input_ids": [5, 6, 7]}
{"input_ids": [8, 9], "labels": [-100, 9], "note": "ignored"}
"#;
    let files = file("f.jsonl", rows);
    let vocabulary = Vocabulary::new(files.directory.path(), VOCAB_SIZE);
    let (data, eval) = Dataset::open(&options(&files.path), &vocabulary, 1, &mut |_| ()).unwrap();
    assert!(eval.is_none() && vocabulary.loaded_tokenizer().is_none());
    assert_eq!(data.sequence(0).unwrap().tokens, [5, 6, 7]);
    assert_eq!(
        data.sequence(1).unwrap().labels().collect::<Vec<_>>(),
        [9, -100]
    );
    assert_eq!(data.files()[0].format, Format::InputIds);
    assert_eq!(
        data.origin(1).unwrap().place.to_string(),
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
            assert_eq!(
                other.sequence(row).unwrap().tokens,
                lines.sequence(row).unwrap().tokens
            );
        }
    }
    assert_eq!(lines.origin(2).unwrap().place.number, RowNumber::Line(4));
}

#[test]
fn the_hash_is_the_sha256_of_the_bytes() {
    // sha256sum of the same bytes.
    let data = read("f.jsonl", "{\"text\": \"abc\"}\n", |_| ()).unwrap();
    assert_eq!(
        data.files()[0].sha256,
        "b3b44c015f2cfd9f6727c04576599da0309a65ffc71323b91e87b469177983c2"
    );
}

#[test]
fn long_rows_are_counted() {
    let rows = "{\"text\": \"In the beginning God created\"}\n{\"text\": \"a\"}\n";
    let cut = read("f.jsonl", rows, |o| o.max_seq_len = 5).unwrap();
    assert_eq!(cut.sequence(0).unwrap().tokens, [0, 43, 80, 261, 297]); // without the end token
    assert_eq!((cut.counts().truncated, cut.counts().too_long), (1, 0));
    let lost = cut.counts().lost;
    let whole = read("f.jsonl", rows, |_| ()).unwrap().counts();
    assert_eq!(
        lost.truncated,
        whole.trained_tokens - cut.counts().trained_tokens
    );
    assert_eq!(cut.counts().all_trained_tokens(), whole.trained_tokens);
    let dropped = read("f.jsonl", rows, |o| {
        o.max_seq_len = 5;
        o.too_long = TooLong::Drop;
    })
    .unwrap();
    assert_eq!((dropped.num_sequences(), dropped.counts().too_long), (1, 1));
    assert_eq!(dropped.counts().all_trained_tokens(), whole.trained_tokens);
    assert_eq!(dropped.counts().longest, cut.counts().longest);
    assert_eq!(dropped.origin(0).unwrap().place.number, RowNumber::Line(2));
    let error = read("f.jsonl", rows, |o| {
        o.max_seq_len = 5;
        o.too_long = TooLong::Error;
    });
    let message = error.err().expect("refused");
    assert!(message.starts_with("f.jsonl:1: the row has"), "{message}");
}

#[test]
fn a_prompt_that_fills_the_length_is_reported_as_such() {
    let rows = "{\"input_ids\": [1, 2, 3, 4], \"labels\": [-100, -100, -100, 4]}\n\
                {\"input_ids\": [1, 2, 3], \"labels\": [1, -100, -100]}\n\
                {\"input_ids\": [1, 2, 3]}\n";
    let data = read("f.jsonl", rows, |o| o.max_seq_len = 3).unwrap();
    let counts = data.counts();
    assert_eq!(
        (counts.prompt_fills, counts.untrained, counts.kept()),
        (1, 1, 1)
    );
    assert_eq!((counts.lost.prompt_fills, counts.lost.total()), (1, 1));
    let text = counts.to_string();
    assert!(
        text.contains(
            "1 left out: the prompt fills data.max_seq_len, 1 left out: no trained token"
        ),
        "{text}"
    );
    let none = read("f.jsonl", rows.lines().next().unwrap(), |o| {
        o.max_seq_len = 3
    });
    let message = none.err().expect("refused");
    assert!(
        message.contains("0 have no trained token, 1 have a prompt that fills data.max_seq_len"),
        "{message}"
    );
}

#[test]
fn many_rows_keep_their_order_and_the_first_fault_is_reported() {
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
        assert_eq!(data.sequence(row).unwrap().tokens, expected);
        assert_eq!(
            data.origin(row).unwrap().place.number,
            RowNumber::Line(row as u64 + 1)
        );
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
    let schedule = BatchSchedule::evaluation(&eval, &options).unwrap();
    assert_eq!(schedule.total_steps(), 1);
    assert_eq!(schedule.step(0).unwrap().trained_tokens, 3);
}

/// Text files -> packed micro-batches, once through.
#[test]
fn a_run_sees_every_row_once_an_epoch() {
    let rows: String = (0..23)
        .map(|i| format!("{{\"text\": \"{}\"}}\n", "ab ".repeat(1 + i % 6)))
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
    let schedule = BatchSchedule::training(&data, &options, 3, horizon).unwrap();
    assert_eq!(schedule.total_steps(), 10);
    let (mut tokens, mut trained) = (0, 0);
    for k in 0..10 {
        let step = schedule.step(k).unwrap();
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
