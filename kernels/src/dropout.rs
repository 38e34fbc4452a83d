//! Rows -> the rows with elements zeroed at random and the kept ones enlarged.
//!
//! `y = x / (1 - p)` where the element's random number is at least `p`, else 0. Element `(t, d)`
//! draws word `d % 4` of counter `(d / 4, position_t, sequence_t, site)`. The draw does not depend
//! on how tokens were batched. A gradient goes through the same function.

use espalier_interface::{Services, random};

use crate::element::{Element, Real};
use crate::simd::vectorized;
use crate::split::{chunks_mut, rows_per_chunk};

/// Counters that are drawn side by side.
const BLOCKS: usize = 16;

/// The inputs of a dropout's random numbers, apart from the element.
#[derive(Clone, Copy, Debug)]
pub struct Mask {
    /// `random::key(seed, Purpose::DROPOUT, step)`.
    pub key: [u32; 2],
    /// The number of the place in the model.
    pub site: u32,
    /// The share of elements that is zeroed, in `[0, 1)`.
    pub probability: f64,
}

/// Writes `y`, the kept elements of `x` times `1 / (1 - p)`.
///
/// # Shapes
/// `x`, `y`: `[T, D]`; `positions`, `sequences`: `[T]`, the latter counted within the step.
pub fn dropout<E: Element>(
    services: &dyn Services,
    x: &[E],
    positions: &[i32],
    sequences: &[i32],
    mask: Mask,
    y: &mut [E],
) {
    if positions.is_empty() {
        return;
    }
    let width = x.len() / positions.len();
    assert!(
        x.len() == y.len() && x.len() == width * positions.len(),
        "dropout: shapes disagree"
    );
    assert!(
        sequences.len() == positions.len(),
        "dropout: positions and sequences disagree"
    );
    assert!(
        (0.0..1.0).contains(&mask.probability),
        "dropout: a probability is not in [0, 1)"
    );
    // A number is kept where its 24 bits are at least p * 2^24: the same as `uniform(word) >= p`.
    let threshold = (mask.probability * 16_777_216.0).ceil() as u32;
    let factor = E::Acc::from_f64(1.0 / (1.0 - mask.probability));
    chunks_mut(services, y, rows_per_chunk(width) * width, |start, y| {
        vectorized(
            #[inline(always)]
            move || {
                let first = start / width;
                for (row, y) in y.chunks_exact_mut(width).enumerate() {
                    let t = first + row;
                    let x = &x[t * width..(t + 1) * width];
                    let counter = [positions[t] as u32, sequences[t] as u32, mask.site];
                    let pieces = x.chunks(4 * BLOCKS).zip(y.chunks_mut(4 * BLOCKS));
                    for (piece, (x, y)) in pieces.enumerate() {
                        let words = words(mask.key, (piece * BLOCKS) as u32, counter);
                        for ((y, &x), &word) in y.iter_mut().zip(x).zip(words.iter()) {
                            let kept = (word >> 8) >= threshold;
                            *y = E::store(if kept {
                                x.load() * factor
                            } else {
                                E::Acc::ZERO
                            });
                        }
                    }
                }
            },
        );
    });
}

/// The words of the counters `first .. first + BLOCKS`, four each, in order.
#[inline(always)]
fn words(key: [u32; 2], first: u32, rest: [u32; 3]) -> [u32; 4 * BLOCKS] {
    let mut blocks = [[0; 4]; BLOCKS];
    for (i, block) in blocks.iter_mut().enumerate() {
        let counter = [first.wrapping_add(i as u32), rest[0], rest[1], rest[2]];
        *block = random::philox(key, counter);
    }
    let mut words = [0; 4 * BLOCKS];
    for (words, block) in words.chunks_exact_mut(4).zip(&blocks) {
        words.copy_from_slice(block);
    }
    words
}

#[cfg(test)]
mod tests;
