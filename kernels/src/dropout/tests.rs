//! Dropout compared with Philox's words, and its share over batches.

use espalier_interface::Serial;

use super::*;
use crate::check;

const MASK: Mask = Mask {
    key: [3, 4],
    site: 9,
    probability: 0.3,
};

#[test]
fn draws_the_word_of_its_counter() {
    let (width, positions, sequences) = (103, [5, 6], [1, 0]);
    let x = vec![2.0f64; 2 * width];
    let mut y = vec![0.0; 2 * width];
    dropout(&Serial, &x, &positions, &sequences, MASK, &mut y);
    for (i, &y) in y.iter().enumerate() {
        let (t, d) = (i / width, i % width);
        let counter = [(d / 4) as u32, positions[t] as u32, sequences[t] as u32, 9];
        let word = random::philox(MASK.key, counter)[d % 4];
        let kept = f64::from(random::uniform(word)) >= 0.3;
        assert_eq!(y, if kept { 2.0 / 0.7 } else { 0.0 });
    }
}

#[test]
fn keeps_its_share_in_every_batch() {
    let (tokens, width) = (400, 64);
    let x = vec![1.0f32; tokens * width];
    let positions: Vec<i32> = (0..tokens as i32).collect();
    let sequences = vec![0; tokens];
    let run = |services: &dyn Services| {
        let mut y = vec![0.0f32; x.len()];
        dropout(services, &x, &positions, &sequences, MASK, &mut y);
        y
    };
    check::same_on_two_threads(run);
    let whole = run(&Serial);
    let kept = whole.iter().filter(|&&v| v != 0.0).count() as f64 / x.len() as f64;
    assert!((kept - 0.7).abs() < 0.01, "{kept}");
    let mut tail = vec![0.0f32; 10 * width];
    let from = tokens - 10;
    let tail_x = &x[from * width..];
    dropout(
        &Serial,
        tail_x,
        &positions[from..],
        &sequences[from..],
        MASK,
        &mut tail,
    );
    assert_eq!(tail, whole[from * width..]);
}
