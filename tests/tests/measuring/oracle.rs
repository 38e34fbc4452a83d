//! Logits and decoded weights -> the expected measurements, computed directly.

use espalier_compare::record::{Divergence, WeightError};
use espalier_tests::{Golden, largest, largest_difference};

pub fn log_softmax(logits: &[f64]) -> Vec<f64> {
    let most = largest(logits.iter().copied());
    let sum: f64 = logits.iter().map(|x| (x - most).exp()).sum();
    logits.iter().map(|x| x - most - sum.ln()).collect()
}

/// `KL(p || q)` of two log-probabilities.
pub fn divergence(p: &[f64], q: &[f64]) -> f64 {
    let terms = p.iter().zip(q).map(|(p, q)| p.exp() * (p - q));
    terms.sum()
}

pub fn top(logits: &[f64]) -> usize {
    // The first of equal ones.
    let larger = |a: &usize, b: &usize| logits[*a].total_cmp(&logits[*b]).then(b.cmp(a));
    (0..logits.len()).max_by(larger).expect("a prediction")
}

/// Compares a divergence with those of all its tokens.
pub fn assert_divergence(found: &Divergence, mut each: Vec<f64>, same_top: f64) {
    let mean = each.iter().sum::<f64>() / each.len() as f64;
    each.sort_by(f64::total_cmp);
    let rank = |share: f64| each[(share * each.len() as f64).ceil() as usize - 1];
    assert_eq!(found.tokens, each.len() as u64);
    let expected = [mean, rank(0.5), rank(0.99), each[each.len() - 1]];
    let numbers = [found.mean, found.median, found.p99, found.largest];
    for (found, expected) in numbers.into_iter().zip(expected) {
        assert!(
            (found - expected).abs() <= 1e-12 * (1.0 + expected),
            "{found} {expected}"
        );
    }
    assert_eq!(found.same_top, same_top);
}

/// The relative errors of the numbers of `found`: the sums of squares of `decoded - dense` and of
/// `dense`, and the largest difference.
pub fn off_weight_error(found: &WeightError, dense: &[f64], decoded: &[f64]) -> [f64; 3] {
    assert_eq!(dense.len(), decoded.len());
    let each = || dense.iter().zip(decoded).map(|(x, y)| (y - x).abs());
    let expected = [
        each().map(|error| error * error).sum(),
        dense.iter().map(|x| x * x).sum(),
        largest_difference(dense, decoded),
    ];
    let numbers = [found.squared_error, found.squared_norm, found.largest_error];
    let pairs: [(f64, f64); 3] = std::array::from_fn(|at| (numbers[at], expected[at]));
    pairs.map(|(found, expected)| (found / expected - 1.0).abs())
}

/// A peer's log-probabilities for every trained token of the golden rows.
pub fn golden_predictions(file: &str) -> Vec<Vec<f64>> {
    let golden = Golden::open(&format!("llama/{file}.safetensors"));
    let rows = golden.numbers("logits").chunks_exact(48 * 512);
    // The last token of a row has no target.
    let trained = rows.flat_map(|row| row[..47 * 512].chunks_exact(512));
    trained.map(log_softmax).collect()
}
