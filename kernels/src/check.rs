//! A function and its gradient -> a comparison with central differences, for the tests of every op.

use espalier_interface::{Serial, Services, random};

/// Host threads that run the calls of a `parallel_for` on two threads, from both ends.
pub struct TwoThreads;

impl Services for TwoThreads {
    fn threads(&self) -> usize {
        2
    }

    fn parallel_for(&self, count: usize, body: &(dyn Fn(usize) + Sync)) {
        let middle = count / 2;
        std::thread::scope(|scope| {
            scope.spawn(move || (middle..count).rev().for_each(body));
            (0..middle).rev().for_each(body);
        });
    }
}

/// `n` normal numbers of stream `stream`.
pub fn numbers(n: usize, stream: u32) -> Vec<f64> {
    (0..n)
        .map(|i| {
            let words = random::philox([7, stream], [i as u32, 0, 0, 0]);
            f64::from(random::normal([words[0], words[1]])[0])
        })
        .collect()
}

/// `x` as f32.
pub fn floats(x: &[f64]) -> Vec<f32> {
    x.iter().map(|&v| v as f32).collect()
}

/// Asserts that `gradient` is the gradient of `loss` at `x`, by central differences.
pub fn gradient(loss: impl Fn(&[f64]) -> f64, x: &[f64], gradient: &[f64]) {
    assert_eq!(x.len(), gradient.len());
    let (step, mut moved) = (1e-5, x.to_vec());
    for i in 0..x.len() {
        moved[i] = x[i] + step;
        let above = loss(&moved);
        moved[i] = x[i] - step;
        let below = loss(&moved);
        moved[i] = x[i];
        let expected = (above - below) / (2.0 * step);
        let error = (gradient[i] - expected).abs();
        assert!(
            error <= 1e-7 * expected.abs().max(1.0),
            "element {i}: gradient {} is not {expected}",
            gradient[i]
        );
    }
}

/// `sum_i a_i b_i`.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// Asserts that `run` has the same result on one thread and on two.
pub fn same_on_two_threads<T: PartialEq + std::fmt::Debug>(run: impl Fn(&dyn Services) -> T) {
    assert_eq!(run(&Serial), run(&TwoThreads));
}

/// Asserts that `a` and `b` differ by at most `tolerance` times the larger of 1 and `b`.
pub fn close<T: Copy + Into<f64>>(a: &[T], b: &[f64], tolerance: f64) {
    assert_eq!(a.len(), b.len());
    for (i, (&x, &y)) in a.iter().zip(b).enumerate() {
        let x: f64 = x.into();
        assert!(
            (x - y).abs() <= tolerance * y.abs().max(1.0),
            "element {i}: {x} is not {y}"
        );
    }
}
