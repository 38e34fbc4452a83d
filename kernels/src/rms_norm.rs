//! Rows -> rows of unit root mean square, times a weight; and the gradients of both.
//!
//! `r_t = 1 / sqrt(mean_d x_td^2 + eps)`, `n_td = round(x_td r_t)`, `y_td = n_td w_d`: the row is
//! rounded to its dtype before the weight, as Hugging Face's `LlamaRMSNorm` does. With an offset
//! `o`, `y_td = x_td r_t (o + w_d)` is rounded once, as in `Gemma2RMSNorm`: see [`Form`].

use espalier_interface::Services;

use crate::added::Added;
use crate::columns::add_sums;
use crate::element::{Element, Real, convert_real};
use crate::rounded::{rounded, rounded_onto};
use crate::split::{chunks_mut, rows_per_chunk};
use crate::{lanes, simd::vectorized};

/// What is multiplied to a norm.
pub trait Form<E: Element>: Copy + Sync {
    /// The factor of a column, of the column's weight.
    fn factor(self, weight: E::Acc) -> E::Acc;
    /// What it multiplies, of `x r`.
    fn normal(self, normal: E::Acc) -> E::Acc;
}

/// The weight, of a norm that is rounded first.
#[derive(Clone, Copy, Debug)]
pub struct Rounded;

impl<E: Element> Form<E> for Rounded {
    #[inline(always)]
    fn factor(self, weight: E::Acc) -> E::Acc {
        weight
    }
    #[inline(always)]
    fn normal(self, normal: E::Acc) -> E::Acc {
        E::store(normal).load()
    }
}

/// This number and the weight, of a norm that is not rounded.
#[derive(Clone, Copy, Debug)]
pub struct Offset(pub f64);

impl<E: Element> Form<E> for Offset {
    #[inline(always)]
    fn factor(self, weight: E::Acc) -> E::Acc {
        E::Acc::from_f64(self.0) + weight
    }
    #[inline(always)]
    fn normal(self, normal: E::Acc) -> E::Acc {
        normal
    }
}

/// `1 / sqrt(mean(row^2) + eps)`.
#[inline(always)]
fn inverse_rms<E: Element>(row: &[E], eps: f64) -> E::Acc {
    let squares = lanes::sum(
        row,
        #[inline(always)]
        |v| v * v,
    );
    let mean = squares / E::Acc::from_f64(row.len() as f64);
    E::Acc::ONE / (mean + E::Acc::from_f64(eps)).sqrt()
}

/// Writes `y = round(x r) w`, or what another `form` says.
///
/// # Shapes
/// `x`, `y`: `[T, D]`; `weight`: `[D]`, in any float dtype.
pub fn rms_norm<E: Element, W: Element>(
    services: &dyn Services,
    form: impl Form<E>,
    x: &[E],
    weight: &[W],
    eps: f64,
    y: &mut [E],
) {
    let width = weight.len();
    assert!(
        x.len() == y.len() && x.len().is_multiple_of(width),
        "rms_norm: shapes disagree"
    );
    chunks_mut(services, y, rows_per_chunk(width) * width, |start, y| {
        vectorized(
            #[inline(always)]
            move || {
                let x = &x[start..start + y.len()];
                for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
                    let r = inverse_rms(x, eps);
                    rounded(
                        y,
                        #[inline(always)]
                        |at, values| {
                            let operands = x[at.clone()].iter().zip(&weight[at]);
                            for (value, (&x, &w)) in values.iter_mut().zip(operands) {
                                let w = form.factor(convert_real(w.load()));
                                *value = form.normal(x.load() * r) * w;
                            }
                        },
                    );
                }
            },
        );
    });
}

/// Writes the input's gradient, `dx = r (g - x r^2 mean(g x))` with `g = dy w`, w as `form` says,
/// rounded, or as `added` says the rounded sum of it and other values.
///
/// # Shapes
/// `x`, `dy`, `dx` and what is added: `[T, D]`; `weight`: `[D]`.
#[expect(clippy::too_many_arguments, reason = "the operands of the op")]
pub fn rms_norm_backward<E: Element, W: Element>(
    services: &dyn Services,
    form: impl Form<E>,
    x: &[E],
    weight: &[W],
    dy: &[E],
    eps: f64,
    added: Added<'_, E>,
    dx: &mut [E],
) {
    let width = weight.len();
    assert!(
        x.len() == dx.len() && dy.len() == dx.len(),
        "rms_norm_backward: shapes disagree"
    );
    assert!(
        x.len().is_multiple_of(width),
        "rms_norm_backward: rows are not whole"
    );
    assert!(
        added.fits(dx.len()),
        "rms_norm_backward: what is added has another shape"
    );
    chunks_mut(services, dx, rows_per_chunk(width) * width, |start, dx| {
        vectorized(
            #[inline(always)]
            move || {
                for (row, dx) in dx.chunks_exact_mut(width).enumerate() {
                    let first = start + row * width;
                    let (x, dy) = (&x[first..first + width], &dy[first..first + width]);
                    let r = inverse_rms(x, eps);
                    let dot = weighted_dot(form, x, dy, weight);
                    let pull = dot / E::Acc::from_f64(width as f64) * r * r;
                    rounded_onto(
                        dx,
                        added.part(first, width),
                        #[inline(always)]
                        |at, values| {
                            let operands = x[at.clone()].iter().zip(&dy[at.clone()]);
                            let operands = operands.zip(&weight[at.clone()]);
                            for (value, ((x, dy), w)) in values.iter_mut().zip(operands) {
                                let w = form.factor(convert_real(w.load()));
                                *value = r * (dy.load() * w - x.load() * pull);
                            }
                        },
                    );
                }
            },
        );
    });
}

/// `sum_d x_d dy_d w_d`, in lanes.
#[inline(always)]
fn weighted_dot<E: Element, W: Element>(
    form: impl Form<E>,
    x: &[E],
    dy: &[E],
    weight: &[W],
) -> E::Acc {
    lanes::sum_each(
        x.len(),
        #[inline(always)]
        |at, values| {
            let operands = x[at.clone()].iter().zip(&dy[at.clone()]).zip(&weight[at]);
            for (value, ((x, dy), w)) in values.iter_mut().zip(operands) {
                *value = dy.load() * form.factor(convert_real(w.load())) * x.load();
            }
        },
    )
}

/// Adds the weight's gradient: `dweight_d += sum_t dy_td n_td`, n as `form` says, tokens in order,
/// in spans of 64.
///
/// # Shapes
/// `x`, `dy`: `[T, D]`; `inverse`: `[T]`, overwritten with `r_t`; `dweight`: `[D]`.
pub fn rms_norm_backward_weight<E: Element, G: Element>(
    services: &dyn Services,
    form: impl Form<E>,
    x: &[E],
    dy: &[E],
    eps: f64,
    inverse: &mut [E::Acc],
    dweight: &mut [G],
) {
    let width = dweight.len();
    assert!(
        x.len() == dy.len(),
        "rms_norm_backward_weight: shapes disagree"
    );
    assert!(
        x.len() == inverse.len() * width,
        "rms_norm_backward_weight: rows are not whole"
    );
    chunks_mut(
        services,
        inverse,
        rows_per_chunk(width),
        |start, inverse| {
            vectorized(
                #[inline(always)]
                move || {
                    let rows = x[start * width..].chunks_exact(width);
                    for (r, row) in inverse.iter_mut().zip(rows) {
                        *r = inverse_rms(row, eps);
                    }
                },
            );
        },
    );
    let inverse = &*inverse;
    add_sums::<E, G>(
        services,
        inverse.len(),
        dweight,
        #[inline(always)]
        |token, first, sums| {
            let r = inverse[token];
            let pairs = dy[first..].iter().zip(&x[first..]);
            for (sum, (&dy, &x)) in sums.iter_mut().zip(pairs) {
                *sum += dy.load() * form.normal(x.load() * r);
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

    fn forward(form: impl Form<f64>, x: &[f64], w: &[f64]) -> Vec<f64> {
        let mut y = vec![0.0; x.len()];
        rms_norm(&Serial, form, x, w, EPS, &mut y);
        y
    }

    #[test]
    fn gradients_are_the_differences() {
        gradients(Rounded);
        gradients(Offset(1.0));
    }

    fn gradients(form: impl Form<f64>) {
        let (t, d) = (3, 37);
        let x = check::numbers(t * d, 1);
        let w = check::numbers(d, 2);
        let dy = check::numbers(t * d, 3);
        let mut dx = vec![0.0; t * d];
        rms_norm_backward(&Serial, form, &x, &w, &dy, EPS, Added::Nothing, &mut dx);
        check::gradient(|x| check::dot(&forward(form, x, &w), &dy), &x, &dx);
        let (mut dw, mut inverse) = (vec![0.5; d], vec![0.0; t]);
        rms_norm_backward_weight(&Serial, form, &x, &dy, EPS, &mut inverse, &mut dw);
        dw.iter_mut().for_each(|g| *g -= 0.5);
        check::gradient(|w| check::dot(&forward(form, &x, w), &dy), &w, &dw);
    }

    #[test]
    fn gradients_are_added_as_by_a_sum_of_their_own() {
        let (t, d) = (5, 75);
        let [x, dy, earlier] = [1, 2, 3].map(|seed| {
            let numbers = check::numbers(t * d, seed).into_iter();
            numbers.map(half::bf16::from_f64).collect::<Vec<_>>()
        });
        let w = check::floats(&check::numbers(d, 4));
        let gradient = |added: Added<'_, half::bf16>, mut dx: Vec<half::bf16>| {
            rms_norm_backward(&Serial, Rounded, &x, &w, &dy, EPS, added, &mut dx);
            dx
        };
        let plain = gradient(Added::Nothing, dy.clone());
        let mut sum = dy.clone();
        crate::arithmetic::add(&Serial, &earlier, &plain, 1.0, &mut sum);
        assert_eq!(gradient(Added::Values(&earlier), dy.clone()), sum);
        assert_eq!(gradient(Added::Output, earlier.clone()), sum);
    }

    #[test]
    fn f32_and_threads_agree() {
        agreement(Rounded, Rounded);
        agreement(Offset(1.0), Offset(1.0));
    }

    /// With the form in f32, and in f64.
    fn agreement(form: impl Form<f32>, exact: impl Form<f64>) {
        let (t, d) = (300, 100);
        let (x, w) = (check::numbers(t * d, 1), check::numbers(d, 2));
        let dy = check::numbers(t * d, 3);
        let (xf, wf, dyf) = (check::floats(&x), check::floats(&w), check::floats(&dy));
        let run = |services: &dyn Services| {
            let (mut y, mut dx) = (vec![0f32; t * d], vec![0f32; t * d]);
            let (mut dw, mut inverse) = (vec![0f32; d], vec![0f32; t]);
            rms_norm(services, form, &xf, &wf, EPS, &mut y);
            rms_norm_backward(services, form, &xf, &wf, &dyf, EPS, Added::Nothing, &mut dx);
            rms_norm_backward_weight(services, form, &xf, &dyf, EPS, &mut inverse, &mut dw);
            (y, dx, dw)
        };
        check::same_on_two_threads(run);
        check::close(&run(&Serial).0, &forward(exact, &x, &w), 1e-6);
        let mut dw = vec![0.0f64; d];
        rms_norm_backward_weight(&Serial, exact, &x, &dy, EPS, &mut vec![0.0; t], &mut dw);
        check::close(&run(&Serial).2, &dw, 1e-5);
    }
}
