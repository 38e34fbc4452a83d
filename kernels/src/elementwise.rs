//! Numbers -> a function of each: `exp`, `log`, `sigmoid`, `tanh`, `erf` and `rsqrt`.

use espalier_interface::Services;

use crate::element::{Element, Real};
use crate::simd::vectorized;
use crate::split::{CHUNK, chunks_mut};

/// A function of one number, computed in `E::Acc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// `e^x`.
    Exp,
    /// `ln x`.
    Log,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// The error function.
    Erf,
}

impl Function {
    /// All functions.
    pub const ALL: [Function; 5] = [
        Function::Exp,
        Function::Log,
        Function::Sigmoid,
        Function::Tanh,
        Function::Erf,
    ];

    /// The name of its op.
    pub const fn name(self) -> &'static str {
        match self {
            Function::Exp => "exp",
            Function::Log => "log",
            Function::Sigmoid => "sigmoid",
            Function::Tanh => "tanh",
            Function::Erf => "erf",
        }
    }
}

/// Writes `y = f(x)`.
#[rustfmt::skip] // One function a line.
pub fn elementwise<E: Element>(services: &dyn Services, f: Function, x: &[E], y: &mut [E]) {
    match f {
        Function::Exp => map(services, x, y, #[inline(always)] |x: E::Acc| x.exp()),
        Function::Log => map(services, x, y, #[inline(always)] |x: E::Acc| x.ln()),
        Function::Sigmoid => map(services, x, y, #[inline(always)] |x: E::Acc| x.sigmoid()),
        Function::Tanh => map(services, x, y, #[inline(always)] |x: E::Acc| x.tanh()),
        Function::Erf => map(services, x, y, #[inline(always)] |x: E::Acc| x.erf()),
    }
}

/// Writes `y = 1 / sqrt(alpha x + beta)`.
pub fn rsqrt<E: Element>(services: &dyn Services, x: &[E], [alpha, beta]: [f64; 2], y: &mut [E]) {
    let (alpha, beta) = (E::Acc::from_f64(alpha), E::Acc::from_f64(beta));
    map(
        services,
        x,
        y,
        #[inline(always)]
        move |x: E::Acc| E::Acc::ONE / (alpha * x + beta).sqrt(),
    );
}

pub(crate) fn map<E: Element>(
    services: &dyn Services,
    x: &[E],
    y: &mut [E],
    f: impl Fn(E::Acc) -> E::Acc + Copy + Sync,
) {
    assert!(x.len() == y.len(), "a function's shapes disagree");
    chunks_mut(services, y, CHUNK, |start, y| {
        vectorized(
            #[inline(always)]
            move || {
                let x = &x[start..start + y.len()];
                for (y, &x) in y.iter_mut().zip(x) {
                    *y = E::store(f(x.load()));
                }
            },
        );
    });
}

#[cfg(test)]
mod tests {
    use espalier_interface::Serial;
    use half::bf16;

    use super::*;
    use crate::check;

    #[test]
    fn functions_are_those_of_f64_and_round_once() {
        let x = check::numbers(CHUNK + 9, 1);
        let positive: Vec<f64> = x.iter().map(|x| x * x + 0.1).collect();
        type Case<'a> = (Function, fn(f64) -> f64, &'a [f64]);
        let functions: [Case<'_>; 5] = [
            (Function::Exp, f64::exp, &x),
            (Function::Log, f64::ln, &positive),
            (Function::Sigmoid, |x| 1.0 / (1.0 + (-x).exp()), &x),
            (Function::Tanh, f64::tanh, &x),
            (Function::Erf, libm::erf, &x),
        ];
        assert_eq!(functions.map(|(function, ..)| function), Function::ALL);
        for (function, expected, x) in functions {
            let (mut y, mut yf) = (vec![0.0; x.len()], vec![0f32; x.len()]);
            elementwise(&Serial, function, x, &mut y);
            elementwise(&Serial, function, &check::floats(x), &mut yf);
            let expected: Vec<f64> = x.iter().map(|&x| expected(x)).collect();
            assert_eq!(y, expected);
            check::close(&yf, &expected, 1e-6);
        }
        let (mut y, mut yf) = (vec![0.0; x.len()], vec![0f32; x.len()]);
        rsqrt(&Serial, &positive, [0.25, 1.5], &mut y);
        rsqrt(&Serial, &check::floats(&positive), [0.25, 1.5], &mut yf);
        let roots = positive.iter().map(|x| 1.0 / (0.25 * x + 1.5).sqrt());
        let roots: Vec<f64> = roots.collect();
        assert_eq!(y, roots);
        check::close(&yf, &roots, 1e-6);
        let mut narrow = [bf16::ZERO];
        elementwise(&Serial, Function::Exp, &[bf16::from_f32(1.0)], &mut narrow);
        assert_eq!(narrow[0], bf16::from_f32(1f32.exp()));
    }

    #[test]
    fn threads_agree_and_extremes_are_finite() {
        let mut x = check::floats(&check::numbers(2 * CHUNK + 5, 1));
        (x[0], x[1]) = (-1e4, 1e4);
        let run = |services: &dyn Services| {
            let mut y = vec![0f32; x.len()];
            elementwise(services, Function::Sigmoid, &x, &mut y);
            y
        };
        check::same_on_two_threads(run);
        assert_eq!(run(&Serial)[..2], [0.0, 1.0]);
    }
}
