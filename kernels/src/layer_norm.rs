//! Rows -> rows of mean 0 and deviation 1, times a weight, plus a bias; and the gradients of input
//! and weight. That of the bias is [`crate::bias::bias_backward`].
//!
//! `m_t = mean_d x_td`, `r_t = 1 / sqrt(mean_d (x_td - m_t)^2 + eps)`, `n_td = (x_td - m_t) r_t`,
//! `y_td = n_td w_d + b_d`, rounded once.

use std::ops::Range;

use espalier_interface::Services;

use crate::columns::add_sums;
use crate::element::{Element, Real};
use crate::split::{chunks_mut, rows_per_chunk};
use crate::{lanes, simd::vectorized};

/// `m` and `r` of a row. The squares are those of the differences from the mean, in a second walk
/// over the row, which loses no digits where the mean is large.
#[inline(always)]
fn moments<E: Element>(row: &[E], eps: f64) -> [E::Acc; 2] {
    let count = E::Acc::from_f64(row.len() as f64);
    let sum = lanes::sum(
        row,
        #[inline(always)]
        |v| v,
    );
    let mean = sum / count;
    let squares = lanes::sum(
        row,
        #[inline(always)]
        move |v| (v - mean) * (v - mean),
    );
    let inverse = E::Acc::ONE / (squares / count + E::Acc::from_f64(eps)).sqrt();
    [mean, inverse]
}

/// Writes `y = n w + b`, or `n w` without a bias.
///
/// # Shapes
/// `x`, `y`: `[T, D]`; `weight`, `bias`: `[D]`, already in the dtype of the arithmetic.
pub fn layer_norm<E: Element>(
    services: &dyn Services,
    x: &[E],
    weight: &[E::Acc],
    bias: Option<&[E::Acc]>,
    eps: f64,
    y: &mut [E],
) {
    let width = weight.len();
    assert!(
        x.len() == y.len() && x.len().is_multiple_of(width),
        "layer_norm: shapes disagree"
    );
    assert!(
        bias.is_none_or(|bias| bias.len() == width),
        "layer_norm: the bias has another width"
    );
    chunks_mut(services, y, rows_per_chunk(width) * width, |start, y| {
        vectorized(
            #[inline(always)]
            move || {
                let x = &x[start..start + y.len()];
                for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
                    let [mean, r] = moments(x, eps);
                    let columns = y.iter_mut().zip(x).zip(weight);
                    match bias {
                        Some(bias) => {
                            for (((y, &x), &w), &b) in columns.zip(bias) {
                                *y = E::store((x.load() - mean) * r * w + b);
                            }
                        }
                        None => {
                            for ((y, &x), &w) in columns {
                                *y = E::store((x.load() - mean) * r * w);
                            }
                        }
                    }
                }
            },
        );
    });
}

/// Writes the input's gradient, `dx = r (g - mean(g) - n mean(g n))` with `g = dy w`.
///
/// # Shapes
/// `x`, `dy`, `dx`: `[T, D]`; `weight`: `[D]`, already in the dtype of the arithmetic.
pub fn layer_norm_backward<E: Element>(
    services: &dyn Services,
    x: &[E],
    weight: &[E::Acc],
    dy: &[E],
    eps: f64,
    dx: &mut [E],
) {
    let width = weight.len();
    assert!(
        x.len() == dx.len() && dy.len() == dx.len() && x.len().is_multiple_of(width),
        "layer_norm_backward: shapes disagree"
    );
    chunks_mut(services, dx, rows_per_chunk(width) * width, |start, dx| {
        vectorized(
            #[inline(always)]
            move || {
                let count = E::Acc::from_f64(width as f64);
                for (row, dx) in dx.chunks_exact_mut(width).enumerate() {
                    let first = start + row * width;
                    let (x, dy) = (&x[first..first + width], &dy[first..first + width]);
                    let [mean, r] = moments(x, eps);
                    let [sum, dot] = weighted_sums(x, dy, weight, mean);
                    // mean(g), and mean(g n) r, which multiplies x - m.
                    let (level, pull) = (sum / count, dot / count * r * r);
                    for (((dx, &x), &dy), &w) in dx.iter_mut().zip(x).zip(dy).zip(weight) {
                        *dx = E::store(r * (dy.load() * w - level - (x.load() - mean) * pull));
                    }
                }
            },
        );
    });
}

/// `sum_d dy_d w_d` and `sum_d dy_d w_d (x_d - m)`, in lanes.
#[inline(always)]
fn weighted_sums<E: Element>(x: &[E], dy: &[E], weight: &[E::Acc], mean: E::Acc) -> [E::Acc; 2] {
    let g = |at: Range<usize>, values: &mut [E::Acc]| {
        let operands = dy[at.clone()].iter().zip(&weight[at]);
        for (value, (dy, &w)) in values.iter_mut().zip(operands) {
            *value = dy.load() * w;
        }
    };
    let sum = lanes::sum_each(x.len(), g);
    let dot = lanes::sum_each(
        x.len(),
        #[inline(always)]
        |at, values| {
            g(at.clone(), values);
            for (value, x) in values.iter_mut().zip(&x[at]) {
                *value *= x.load() - mean;
            }
        },
    );
    [sum, dot]
}

/// Adds the weight's gradient: `dweight_d += sum_t dy_td n_td`, tokens in order, in spans of 64.
///
/// # Shapes
/// `x`, `dy`: `[T, D]`; `found`: `[T, 2]`, overwritten with `m_t` and `r_t`; `dweight`: `[D]`.
pub fn layer_norm_backward_weight<E: Element, G: Element>(
    services: &dyn Services,
    x: &[E],
    dy: &[E],
    eps: f64,
    found: &mut [E::Acc],
    dweight: &mut [G],
) {
    let width = dweight.len();
    assert!(
        x.len() == dy.len() && 2 * x.len() == found.len() * width,
        "layer_norm_backward_weight: shapes disagree"
    );
    let chunk = 2 * rows_per_chunk(width);
    chunks_mut(services, found, chunk, |start, found| {
        vectorized(
            #[inline(always)]
            move || {
                let rows = x[start / 2 * width..].chunks_exact(width);
                for (found, row) in found.chunks_exact_mut(2).zip(rows) {
                    found.copy_from_slice(&moments(row, eps));
                }
            },
        );
    });
    let found = &*found;
    add_sums::<E, G>(
        services,
        found.len() / 2,
        dweight,
        #[inline(always)]
        |token, first, sums| {
            let (mean, r) = (found[2 * token], found[2 * token + 1]);
            let pairs = dy[first..].iter().zip(&x[first..]);
            for (sum, (&dy, &x)) in sums.iter_mut().zip(pairs) {
                *sum += dy.load() * ((x.load() - mean) * r);
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use espalier_interface::Serial;

    use super::*;
    use crate::check;

    const EPS: f64 = 1e-5;

    fn forward(x: &[f64], w: &[f64], b: Option<&[f64]>) -> Vec<f64> {
        let mut y = vec![0.0; x.len()];
        layer_norm(&Serial, x, w, b, EPS, &mut y);
        y
    }

    #[test]
    fn gradients_are_the_differences() {
        let (t, d) = (3, 37);
        let x = check::numbers(t * d, 1);
        let [w, b] = [2, 4].map(|stream| check::numbers(d, stream));
        let dy = check::numbers(t * d, 3);
        let loss = |x: &[f64], w: &[f64]| check::dot(&forward(x, w, Some(&b)), &dy);
        let mut dx = vec![0.0; t * d];
        layer_norm_backward(&Serial, &x, &w, &dy, EPS, &mut dx);
        check::gradient(|x| loss(x, &w), &x, &dx);
        let (mut dw, mut found) = (vec![0.5; d], vec![0.0; 2 * t]);
        layer_norm_backward_weight(&Serial, &x, &dy, EPS, &mut found, &mut dw);
        dw.iter_mut().for_each(|g| *g -= 0.5);
        check::gradient(|w| loss(&x, w), &w, &dw);
    }

    #[test]
    fn a_bias_is_added_and_a_large_mean_loses_few_digits() {
        let (t, d) = (4, 50);
        let x: Vec<f64> = check::numbers(t * d, 1).iter().map(|x| x + 100.0).collect();
        let [w, b] = [2, 3].map(|stream| check::numbers(d, stream));
        let (plain, biased) = (forward(&x, &w, None), forward(&x, &w, Some(&b)));
        for (i, (y, plain)) in biased.iter().zip(&plain).enumerate() {
            assert_eq!(*y, plain + b[i % d]);
        }
        let (xf, wf) = (check::floats(&x), check::floats(&w));
        let mut y = vec![0f32; t * d];
        layer_norm(&Serial, &xf, &wf, None, EPS, &mut y);
        check::close(&y, &plain, 4e-5);
    }

    #[test]
    fn f32_and_threads_agree() {
        let (t, d) = (300, 100);
        let x = check::numbers(t * d, 1);
        let [w, b] = [2, 4].map(|stream| check::numbers(d, stream));
        let dy = check::numbers(t * d, 3);
        let [xf, wf, bf, dyf] = [&x, &w, &b, &dy].map(|numbers| check::floats(numbers));
        let run = |services: &dyn Services| {
            let (mut y, mut dx) = (vec![0f32; t * d], vec![0f32; t * d]);
            let (mut dw, mut found) = (vec![0f32; d], vec![0f32; 2 * t]);
            layer_norm(services, &xf, &wf, Some(&bf), EPS, &mut y);
            layer_norm_backward(services, &xf, &wf, &dyf, EPS, &mut dx);
            layer_norm_backward_weight(services, &xf, &dyf, EPS, &mut found, &mut dw);
            (y, dx, dw)
        };
        check::same_on_two_threads(run);
        let (y, dx, dw) = run(&Serial);
        check::close(&y, &forward(&x, &w, Some(&b)), 2e-6);
        let mut exact = vec![0.0; t * d];
        layer_norm_backward(&Serial, &x, &w, &dy, EPS, &mut exact);
        check::close(&dx, &exact, 2e-6);
        let mut exact = vec![0.0; d];
        layer_norm_backward_weight(&Serial, &x, &dy, EPS, &mut vec![0.0; 2 * t], &mut exact);
        check::close(&dw, &exact, 1e-5);
    }
}
