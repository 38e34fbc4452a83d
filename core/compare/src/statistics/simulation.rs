//! Coverage of the intervals for a known true difference, over simulated comparisons with a fixed
//! key.
#![allow(clippy::print_stdout)] // Figures, for whoever looks.

use espalier_interface::random::{Purpose, key, normal, philox};
use rayon::prelude::*;

use super::{CONFIDENCE, Draws, Interval, Paired};

/// Comparisons of each kind. A coverage of 95 % is then measured with a standard deviation of 1.1
/// percentage points.
const COMPARISONS: u32 = 400;
/// Draws of an interval: its ends are within 1/10 of their spread of those of 10 000 draws.
const COUNT: u32 = 800;
/// The true difference, nats per token.
const TRUTH: f64 = 0.3;

/// A kind of comparison: standard deviations of the effects, nats per token.
#[derive(Clone, Copy, Debug)]
struct Kind {
    seeds: usize,
    documents: usize,
    of_seeds: f64,
    of_documents: f64,
    of_both: f64,
    shape: Shape,
}

/// The distribution of documents.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    /// Equally long, normal effects.
    Even,
    /// Lengths and effects are lognormal: a few documents dominate.
    Skewed,
}

/// A sequence of normal random numbers.
struct Normals {
    key: [u32; 2],
    next: u32,
}

impl Normals {
    fn next(&mut self) -> f64 {
        self.next += 1;
        let words = philox(self.key, [self.next, 0, 0, 0]);
        f64::from(normal([words[0], words[1]])[0])
    }
}

fn comparison(kind: Kind, index: u32) -> Paired {
    let key = key(u64::from(index), Purpose::SYNTHETIC, kind.documents as u64);
    let mut normals = Normals { key, next: 0 };
    let mut each = |of: &dyn Fn(f64) -> f64| -> Vec<f64> {
        (0..kind.documents).map(|_| of(normals.next())).collect()
    };
    let (trained, effects) = match kind.shape {
        Shape::Even => (vec![20.0; kind.documents], each(&|z| z)),
        Shape::Skewed => {
            let sigma = 0.8f64;
            let (mean, power) = ((sigma * sigma / 2.0).exp(), (sigma * sigma).exp());
            let deviation = mean * (power - 1.0).sqrt();
            let lengths = each(&|z| (20.0 * (0.8 * z).exp()).ceil());
            (lengths, each(&|z| ((sigma * z).exp() - mean) / deviation))
        }
    };
    let seed = |_| {
        let of_seed = kind.of_seeds * normals.next();
        let documents = trained.iter().zip(&effects).map(|(tokens, effect)| {
            let of_both = kind.of_both * normals.next();
            tokens * (TRUTH + of_seed + kind.of_documents * effect + of_both)
        });
        documents.collect()
    };
    let differences = (0..kind.seeds).map(seed).collect();
    Paired {
        trained,
        differences,
    }
}

/// The plain percentile bootstrap: seeds and documents resampled with replacement.
fn percentiles(paired: &Paired) -> Interval {
    let key = key(1, Purpose::SYNTHETIC, 0);
    let draw = |draw: u32, place: usize, count: usize| -> usize {
        let word = philox(key, [draw, place as u32, 0, 0])[0];
        ((u64::from(word) * count as u64) >> 32) as usize
    };
    let (seeds, documents) = (paired.differences.len(), paired.trained.len());
    let mean = |index: u32| {
        let (mut sum, mut tokens) = (0.0, 0.0);
        let chosen: Vec<usize> = (0..seeds).map(|seed| draw(index, seed, seeds)).collect();
        for document in 0..documents {
            let picked = draw(index, seeds + document, documents);
            let of_seeds = chosen.iter().map(|seed| paired.differences[*seed][picked]);
            sum += of_seeds.sum::<f64>() / seeds as f64;
            tokens += paired.trained[picked];
        }
        sum / tokens
    };
    let mut means: Vec<f64> = (0..COUNT).map(mean).collect();
    means.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| means[(share * f64::from(COUNT - 1)) as usize];
    Interval([at(0.5 - CONFIDENCE / 2.0), at(0.5 + CONFIDENCE / 2.0)])
}

/// The coverage of the intervals, and their mean width.
fn covered(kind: Kind, interval: impl Fn(&Paired) -> Interval + Sync) -> (f64, f64) {
    let intervals: Vec<Interval> = (0..COMPARISONS)
        .into_par_iter()
        .map(|index| interval(&comparison(kind, index)))
        .collect();
    let of_all = |sum: f64| sum / f64::from(COMPARISONS);
    let hold = intervals.iter().filter(|interval| interval.contains(TRUTH));
    let width: f64 = intervals.iter().map(|interval| interval.width()).sum();
    (of_all(hold.count() as f64), of_all(width))
}

fn ours(paired: &Paired) -> Interval {
    Draws::of(paired, None, COUNT).interval(CONFIDENCE)
}

/// Seeds that cause nearly all of the noise, nearly none of it, and much of it.
const EFFECTS: [(f64, f64, f64); 4] = [
    (1.0, 0.0, 0.0),
    (0.02, 1.0, 1.0),
    (0.3, 1.0, 1.0),
    (0.0, 0.0, 1.0),
];

#[test]
fn intervals_have_their_nominal_coverage() {
    for seeds in [3, 5, 8] {
        for (documents, shape) in [(12, Shape::Even), (60, Shape::Skewed)] {
            for (of_seeds, of_documents, of_both) in EFFECTS {
                let kind = Kind {
                    seeds,
                    documents,
                    of_seeds,
                    of_documents,
                    of_both,
                    shape,
                };
                let (share, width) = covered(kind, ours);
                println!("{share:.3} width {width:.3} {kind:?}");
                assert!((0.92..=0.99).contains(&share), "{share} of {kind:?}");
            }
        }
    }
}

/// The reason why seeds are not resampled.
#[test]
fn the_percentile_bootstrap_of_three_seeds_has_too_little_coverage() {
    let kind = Kind {
        seeds: 3,
        documents: 40,
        of_seeds: 0.3,
        of_documents: 0.3,
        of_both: 0.3,
        shape: Shape::Even,
    };
    let [(naive, _), (share, _)] = [covered(kind, percentiles), covered(kind, ours)];
    assert!(naive < 0.85, "{naive}");
    assert!((0.92..=0.99).contains(&share), "{share}");
}
