//! `gelu` and its gradient in f64, and the error function.

use espalier_interface::op::GeluForm;

use super::gelu_tanh;

/// The error function.
///
/// # Source
/// Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.6: `2 / sqrt(pi) e^(-x^2) sum_n
/// 2^n x^(2n + 1) / (1 3 .. (2n + 1))`, whose terms have one sign.
pub fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        // 1 - erf(6) is 2e-17.
        return 1f64.copysign(x);
    }
    let (mut term, mut sum, mut n) = (x, x, 1.0);
    while term.abs() > 1e-18 * sum.abs() {
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
        n += 1.0;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// `e^(-x^2 / 2) / sqrt(2 pi)`.
pub fn normal_density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// GELU and its derivative.
pub fn gelu_of(form: GeluForm, x: f64) -> [f64; 2] {
    if form == GeluForm::Tanh {
        return gelu_tanh(x);
    }
    let below = 0.5 * (1.0 + erf(x / 2f64.sqrt()));
    [x * below, below + x * normal_density(x)]
}

/// `gelu(x)`.
pub fn gelu(form: GeluForm, x: &[f64]) -> Vec<f64> {
    x.iter().map(|&x| gelu_of(form, x)[0]).collect()
}

/// `dx = dy gelu'(x)`.
pub fn gelu_backward(form: GeluForm, dy: &[f64], x: &[f64]) -> Vec<f64> {
    let pairs = dy.iter().zip(x);
    pairs.map(|(dy, &x)| dy * gelu_of(form, x)[1]).collect()
}
