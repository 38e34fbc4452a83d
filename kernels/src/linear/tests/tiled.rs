//! A layer by tiles in plain Rust: each element is compared, to the bit, with a sum of products in
//! the order that tiles add them in.

use super::*;
use crate::added::Added;
use crate::matmul::tests::{rounded, tiled_sum};

/// The sum over `depth` of `left(k) right(k)`, both rounded to bf16.
fn sum(depth: usize, left: impl Fn(usize) -> f32, right: impl Fn(usize) -> f32) -> f32 {
    tiled_sum(depth, |k| rounded(left(k)), |k| rounded(right(k)))
}

/// Bits, as a NaN equals nothing.
fn bits(values: &[bf16]) -> Vec<u16> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// `y` and `dx` of a weight and of `tokens` tokens, `alpha` times each, added to values.
fn check(weight: &dyn Rows<f32>, decoded: &[f32], tokens: usize, threads: usize) {
    let (isa, (n, m), alpha) = (Isa::AmxModel, weight.size(), 0.5f32);
    let (x, dy) = (
        numbers::<bf16>(tokens * m, 1),
        numbers::<bf16>(tokens * n, 2),
    );
    let bias = numbers::<bf16>(n, 3);
    let (y_before, dx_before) = (numbers::<bf16>(tokens * n, 4), numbers(tokens * m, 5));
    let services = Threads(threads);
    let space = |size| vec![0xFF; sum_workspace_bytes::<bf16>(isa, threads, size)];
    let onto = |alpha: f32, values| Sum {
        alpha: f64::from(alpha),
        added: Added::Values(values),
        ..Sum::PRODUCT
    };
    let mut y = vec![bf16::NAN; tokens * n];
    let to = Onto {
        values: &mut y,
        sum: onto(alpha, &y_before),
        adapter: None,
    };
    let row = Dense::new(&bias, 1, n);
    forward(
        isa,
        &services,
        &x,
        weight,
        Some(&row),
        to,
        &mut space([tokens, n, m]),
    );
    let added =
        |before: bf16, sum: f32| bf16::store(before.load() + alpha * bf16::store(sum).load());
    let expected = (0..tokens * n).map(|at| {
        let (t, j) = (at / n, at % n);
        let product = sum(m, |k| x[t * m + k].load(), |k| decoded[j * m + k]);
        added(y_before[at], product + bias[j].load())
    });
    assert_eq!(
        bits(&y),
        bits(&expected.collect::<Vec<_>>()),
        "y of {tokens} x {n} x {m}"
    );

    let mut dx = vec![bf16::NAN; tokens * m];
    let to = Onto {
        values: &mut dx,
        sum: onto(alpha, &dx_before),
        adapter: None,
    };
    input_backward(isa, &services, &dy, weight, to, &mut space([tokens, m, n]));
    let expected = (0..tokens * m).map(|at| {
        let (t, i) = (at / m, at % m);
        let product = sum(n, |k| dy[t * n + k].load(), |k| decoded[k * m + i]);
        added(dx_before[at], product)
    });
    assert_eq!(
        bits(&dx),
        bits(&expected.collect::<Vec<_>>()),
        "dx of {tokens} x {n} x {m}"
    );
}

/// `dW`, to which `alpha` times the product is added, of tokens of `n` and `m` elements.
fn check_gradient([tokens, n, m]: [usize; 3], threads: usize) {
    let (isa, alpha) = (Isa::AmxModel, 0.5f32);
    let (x, dy) = (
        numbers::<bf16>(tokens * m, 1),
        numbers::<bf16>(tokens * n, 2),
    );
    let before = numbers::<f32>(n * m, 6);
    let mut dw = before.clone();
    let gradient = WeightGradient {
        values: &mut dw,
        size: (n, m),
        alpha: f64::from(alpha),
    };
    let bytes = workspace_bytes::<f32>(isa, threads, [n, m, tokens]);
    weight_backward(
        isa,
        &Threads(threads),
        &dy,
        &x,
        gradient,
        &mut vec![0xFF; bytes],
    );
    for (at, (&found, &before)) in dw.iter().zip(&before).enumerate() {
        let (j, i) = (at / m, at % m);
        let of_dy = |t: usize| alpha * dy[t * n + j].load();
        let expected = before + sum(tokens, of_dy, |t| x[t * m + i].load());
        assert_eq!(
            found.to_bits(),
            expected.to_bits(),
            "dW of {tokens} x {n} x {m} at {at}"
        );
    }
}

#[test]
fn every_element_is_a_sum_in_the_order_of_tiles() {
    for [n, m] in [[1, 1], [15, 31], [33, 64], [48, 100], [40, 544]] {
        let dense = numbers::<bf16>(n * m, 7);
        let wide: Vec<f32> = dense.iter().map(|w| w.load()).collect();
        let mut decoded = vec![0.0; n * m];
        Steps(n, m).decode(0..n, 0..m, &mut decoded);
        for (tokens, threads) in [(1, 1), (2, 2), (17, 1), (70, 2)] {
            check(&Dense::new(&dense, n, m), &wide, tokens, threads);
            check(&Packed(&Steps(n, m)), &decoded, tokens, threads);
            check_gradient([tokens, n, m], threads);
        }
    }
    // Parts of the depth in each of the three products.
    let dense = numbers::<f32>(600 * 530, 8);
    check(&Dense::new(&dense, 600, 530), &dense, 3, 2);
    check_gradient([1100, 16, 20], 3);
}
