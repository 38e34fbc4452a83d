//! `dropout` and `init` in f64, on the random numbers of the interface.

use espalier_interface::random::{Purpose, key, normal, philox, uniform};

/// The scalars of a `dropout`.
#[derive(Clone, Copy, Debug)]
pub struct DropoutDraw {
    /// Of the run.
    pub seed: u64,
    /// The optimizer step.
    pub step: u64,
    /// The number of the place in the model.
    pub site: u32,
    /// The share that is zeroed.
    pub p: f64,
}

/// `x / (1 - p)` where the element's number is at least `p`, else 0: x `[T, D]`, sequences and
/// positions `[T]`.
///
/// Element (t, d) draws word `d % 4` of counter `(d / 4, position_t, sequence_t, site)`.
pub fn dropout(x: &[f64], sequences: &[i32], positions: &[i32], draw: DropoutDraw) -> Vec<f64> {
    let key = key(draw.seed, Purpose::DROPOUT, draw.step);
    let mut y = Vec::with_capacity(x.len());
    for t in 0..positions.len() {
        let width = x.len() / positions.len();
        for d in 0..width {
            let (position, sequence) = (positions[t] as u32, sequences[t] as u32);
            let words = philox(key, [d as u32 / 4, position, sequence, draw.site]);
            let number = f64::from(uniform(words[d % 4]));
            y.push(if number >= draw.p {
                x[t * width + d] / (1.0 - draw.p)
            } else {
                0.0
            });
        }
    }
    y
}

/// The words that element `i` of an `init` draws: word `i % 4` of counter `(i / 4, param, 0, 0)`,
/// and the rest of its block.
fn block(seed: u64, param: u32, i: usize) -> [u32; 4] {
    philox(key(seed, Purpose::INIT, 0), [i as u32 / 4, param, 0, 0])
}

/// `n` numbers uniform in `[-bound, bound)`.
pub fn init_uniform(n: usize, seed: u64, param: u32, bound: f64) -> Vec<f64> {
    let number = |i: usize| f64::from(uniform(block(seed, param, i)[i % 4]));
    (0..n).map(|i| bound * (2.0 * number(i) - 1.0)).collect()
}

/// `n` normal numbers of deviation `std`, and the radius of each: words are taken in pairs (Box and
/// Muller).
pub fn init_normal(n: usize, seed: u64, param: u32, std: f64) -> [Vec<f64>; 2] {
    let (mut numbers, mut radii) = (Vec::new(), Vec::new());
    for i in 0..n {
        let words = block(seed, param, i);
        let pair = [words[i % 4 / 2 * 2], words[i % 4 / 2 * 2 + 1]];
        numbers.push(std * f64::from(normal(pair)[i % 2]));
        let radius = -2.0 * (1.0 - f64::from(uniform(pair[0]))).ln();
        radii.push(std * radius.sqrt());
    }
    [numbers, radii]
}
