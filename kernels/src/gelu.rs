//! Numbers -> `x P(x)` of each, and the gradient.
//!
//! `P` is the normal distribution function `(1 + erf(x / sqrt(2))) / 2`, or its approximation by
//! the hyperbolic tangent, which is the sigmoid of [`crate::swiglu`]'s gate. `dx = dy (P(x) + x
//! P'(x))`.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use espalier_interface::Services;
use espalier_interface::op::GeluForm;

use crate::element::{Element, Real};
use crate::elementwise::map;
use crate::simd::vectorized;
use crate::split::{CHUNK, chunks_mut};
use crate::swiglu::{Gate, TanhGate};

/// A distribution function `P`.
trait Distribution: Copy + Sync {
    /// `P(x)`.
    fn at<R: Real>(self, x: R) -> R;
    /// `P(x) + x P'(x)`.
    fn slope<R: Real>(self, x: R) -> R;
}

/// By the error function.
#[derive(Clone, Copy)]
struct Normal;

impl Distribution for Normal {
    #[inline(always)]
    fn at<R: Real>(self, x: R) -> R {
        let half = R::from_f64(0.5);
        half * (R::ONE + (x * R::from_f64(FRAC_1_SQRT_2)).erf())
    }
    #[inline(always)]
    fn slope<R: Real>(self, x: R) -> R {
        // P'(x) = e^(-x^2 / 2) / sqrt(2 pi).
        let root = R::from_f64(0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2);
        self.at(x) + x * ((R::from_f64(-0.5) * (x * x)).exp() * root)
    }
}

/// By the hyperbolic tangent.
#[derive(Clone, Copy)]
struct Approximate;

impl Distribution for Approximate {
    #[inline(always)]
    fn at<R: Real>(self, x: R) -> R {
        TanhGate.argument(x).sigmoid()
    }
    #[inline(always)]
    fn slope<R: Real>(self, x: R) -> R {
        let s = self.at(x);
        s * (R::ONE + TanhGate.slope(x) * (R::ONE - s))
    }
}

/// Writes `y = x P(x)`, rounded once.
///
/// # Shapes
/// `x` and `y` have as many elements.
pub fn gelu<E: Element>(services: &dyn Services, form: GeluForm, x: &[E], y: &mut [E]) {
    match form {
        GeluForm::Exact => forward(services, Normal, x, y),
        GeluForm::Tanh => forward(services, Approximate, x, y),
    }
}

/// Writes `dx = dy (P(x) + x P'(x))`, rounded once.
///
/// # Shapes
/// All have as many elements.
pub fn gelu_backward<E: Element>(
    services: &dyn Services,
    form: GeluForm,
    x: &[E],
    dy: &[E],
    dx: &mut [E],
) {
    match form {
        GeluForm::Exact => backward(services, Normal, x, dy, dx),
        GeluForm::Tanh => backward(services, Approximate, x, dy, dx),
    }
}

fn forward<E: Element>(services: &dyn Services, form: impl Distribution, x: &[E], y: &mut [E]) {
    map(
        services,
        x,
        y,
        #[inline(always)]
        move |x: E::Acc| x * form.at(x),
    );
}

fn backward<E: Element>(
    services: &dyn Services,
    form: impl Distribution,
    x: &[E],
    dy: &[E],
    dx: &mut [E],
) {
    assert!(
        x.len() == dx.len() && dy.len() == dx.len(),
        "gelu_backward: shapes disagree"
    );
    chunks_mut(services, dx, CHUNK, |start, dx| {
        vectorized(
            #[inline(always)]
            move || {
                let end = start + dx.len();
                for ((dx, &x), &dy) in dx.iter_mut().zip(&x[start..end]).zip(&dy[start..end]) {
                    *dx = E::store(dy.load() * form.slope(x.load()));
                }
            },
        );
    });
}

#[cfg(test)]
mod tests {
    use espalier_interface::Serial;

    use super::*;
    use crate::check;

    fn values(form: GeluForm, x: &[f64]) -> Vec<f64> {
        let mut y = vec![0.0; x.len()];
        gelu(&Serial, form, x, &mut y);
        y
    }

    #[test]
    fn gradients_are_the_differences() {
        let (x, dy) = (check::numbers(50, 1), check::numbers(50, 2));
        for form in GeluForm::ALL {
            let mut dx = vec![0.0; 50];
            gelu_backward(&Serial, form, &x, &dy, &mut dx);
            check::gradient(|x| check::dot(&values(form, x), &dy), &x, &dx);
        }
    }

    #[test]
    fn f32_and_threads_agree_and_extremes_are_finite() {
        let n = 2 * CHUNK + 5;
        let mut x = check::numbers(n, 1);
        (x[0], x[1]) = (-1e4, 1e4);
        let xf = check::floats(&x);
        for form in GeluForm::ALL {
            let run = |services: &dyn Services| {
                let (mut y, mut dx) = (vec![0f32; n], vec![0f32; n]);
                gelu(services, form, &xf, &mut y);
                gelu_backward(services, form, &xf, &xf, &mut dx);
                (y, dx)
            };
            check::same_on_two_threads(run);
            let (y, dx) = run(&Serial);
            check::close(&y, &values(form, &x), 1e-6);
            assert!(y.iter().chain(&dx).all(|v| v.is_finite()));
            assert_eq!(y[..2], [0.0, 1e4]);
        }
    }

    /// Values of `torch.nn.functional.gelu` in f64.
    #[test]
    fn both_forms_are_those_of_torch() {
        let x = [-3.0, -1.0, 0.5, 2.0];
        let exact = [
            -0.00404969409489031,
            -0.15865525393145702,
            0.34573123063700656,
            1.9544997361036416,
        ];
        let tanh = [
            -0.0036373920817729943,
            -0.15880800939172324,
            0.34571400982514394,
            1.954597694087775,
        ];
        check::close(&values(GeluForm::Exact, &x), &exact, 1e-15);
        check::close(&values(GeluForm::Tanh, &x), &tanh, 1e-15);
    }
}
