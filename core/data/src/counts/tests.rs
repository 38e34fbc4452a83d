//! Shares of lost tokens, and the line about trained ones.

use super::*;

#[test]
fn what_is_lost_is_a_share_of_all_that_would_be_trained() {
    let mut counts = Counts {
        rows: 12,
        truncated: 2,
        prompt_fills: 1,
        too_long: 1,
        dropped: Dropped {
            json: 2,
            empty: 1,
            ..Dropped::default()
        },
        trained_tokens: 600,
        lost: Lost {
            truncated: 100,
            prompt_fills: 50,
            too_long: 150,
            dropped: 0,
        },
        ..Counts::default()
    };
    counts.finish();
    // Nine rows have 900 trained tokens, so that two which cannot be read count as 200; an
    // empty one has none.
    assert_eq!((counts.kept(), counts.lost.dropped), (7, 200));
    assert_eq!(counts.all_trained_tokens(), 1100);
    assert!((counts.share(counts.lost.total()) - 5.0 / 11.0).abs() < 1e-12);
    let summary = counts.summary();
    assert!(
        summary.starts_with(
            "2 cut to data.max_seq_len (9.1 %), 1 left out: the prompt fills data.max_seq_len \
             (4.5 %), 1 left out: longer"
        ),
        "{summary}"
    );
    assert!(
        summary.contains("2 left out: no JSON object, 1 left out: empty"),
        "{summary}"
    );
}

#[test]
fn what_is_trained_is_one_line() {
    let trains = |change: fn(&mut Trains)| {
        let mut trains = Trains::default();
        change(&mut trains);
        trains.to_string()
    };
    let every = trains(|t| (t.conversations, t.answers) = (3214, 9870));
    assert_eq!(every, "every answer of 3,214 conversations (9,870 answers)");
    let last = trains(|t| (t.conversations, t.answers, t.untrained_answers) = (2, 2, 5));
    assert_eq!(
        last,
        "the last answer of 2 conversations and none of 5 earlier answers"
    );
    let single = trains(|t| (t.conversations, t.answers, t.whole) = (7, 7, 1_000_000));
    assert_eq!(
        single,
        "the answer of 7 conversations, every token of 1,000,000 rows"
    );
}
