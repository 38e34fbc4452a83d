//! Labels, rows that are left out, and the split into training and held-out rows.

use super::*;
use crate::error::RowNumber;

fn labels(tokens: &[i32], labels: Option<&[i32]>) -> Vec<i32> {
    let row = (tokens.to_vec(), labels.map(<[i32]>::to_vec));
    let dataset = Dataset::of_rows(&[row]);
    let sequence = dataset.sequence(0).unwrap();
    let labels: Vec<i32> = sequence.labels().collect();
    let trained = labels.iter().filter(|&&label| label != UNTRAINED).count();
    assert_eq!(trained, sequence.trained_tokens);
    labels
}

#[test]
fn labels_are_shifted_here_and_the_last_is_untrained() {
    assert_eq!(labels(&[5, 6, 7], None), [6, 7, -100]);
    // Aligned labels: entry t is the label of token t, so the first is never used.
    assert_eq!(labels(&[5, 6, 7], Some(&[5, -100, 7])), [-100, 7, -100]);
    assert_eq!(labels(&[5, 6], Some(&[-100, 9])), [9, -100]);
}

#[test]
fn rows_without_a_trained_token_are_left_out_and_counted() {
    let dataset = Dataset::of_rows(&[
        (vec![1], None),
        (vec![], None),
        (vec![1, 2], Some(vec![1, -100])),
        (vec![1, 2, 3], Some(vec![-100, -100, 3])),
    ]);
    assert_eq!(dataset.num_sequences(), 1);
    assert_eq!(dataset.sequence(0).unwrap().tokens, [1, 2, 3]);
    assert_eq!(dataset.origin(0).unwrap().place.number, RowNumber::Line(4));
    let counts = dataset.counts();
    assert_eq!((counts.rows, counts.untrained), (4, 3));
    assert_eq!((counts.tokens, counts.trained_tokens), (3, 1));
    let text = counts.to_string();
    assert_eq!(
        text,
        "1 sequences of 4 rows, 3 tokens, 1 trained (33.3 %), 3 left out: no trained token"
    );
}

#[test]
fn a_split_is_a_partition_in_file_order() {
    let rows: Vec<_> = (0..20).map(|i| (vec![i, i], None)).collect();
    let dataset = Dataset::of_rows(&rows);
    let firsts = |d: &Dataset| -> Vec<i32> {
        (0..d.num_sequences())
            .map(|i| d.sequence(i).unwrap().tokens[0])
            .collect()
    };
    let (train, eval) = dataset.split(0.11, 42).unwrap();
    assert_eq!((train.num_sequences(), eval.num_sequences()), (17, 3)); // ceil(2.2)
    let (train, eval) = (firsts(&train), firsts(&eval));
    assert!(train.is_sorted() && eval.is_sorted());
    let mut all = [train, eval.clone()].concat();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..20));
    assert_eq!(firsts(&dataset.split(3.0, 42).unwrap().1), eval);
    assert_ne!(firsts(&dataset.split(3.0, 43).unwrap().1), eval);
    for split in [20.0, 21.0, 0.99] {
        let message = dataset.split(split, 42).err().expect("refused").to_string();
        assert!(message.contains("of 20 rows"), "{message}");
    }
}

#[test]
fn drawn_rows_are_as_many_as_fit_in_file_order() {
    let rows: Vec<_> = (0..20).map(|i| (vec![i, i, i], None)).collect();
    let dataset = Dataset::of_rows(&rows);
    let firsts = |tokens: u64, seed: u64| -> Vec<i32> {
        let drawn = dataset.drawn(tokens, seed);
        (0..drawn.num_sequences())
            .map(|i| drawn.sequence(i).unwrap().tokens[0])
            .collect()
    };
    let five = firsts(17, 42);
    assert_eq!(five.len(), 5);
    assert!(five.is_sorted());
    assert_eq!(firsts(17, 42), five);
    assert_ne!(firsts(17, 43), five);
    // More tokens only add rows.
    let ten = firsts(30, 42);
    assert_eq!(ten.len(), 10);
    assert!(five.iter().all(|row| ten.contains(row)));
    assert!(firsts(1000, 42).into_iter().eq(0..20));
    assert_eq!(
        firsts(1, 42).len(),
        1,
        "a row that is too long is taken alone"
    );
}
