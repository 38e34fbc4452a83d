//! Numbers -> a function of each: `exp`, `log`, `sigmoid` and `rsqrt`.

use espalier_interface::Services;

use crate::element::{Element, Real};
use crate::simd::vectorized;
use crate::split::{CHUNK, chunks_mut};

/// Writes `y = e^x`.
pub fn exp<E: Element>(services: &dyn Services, x: &[E], y: &mut [E]) {
    map(
        services,
        x,
        y,
        #[inline(always)]
        |x: E::Acc| x.exp(),
    );
}

/// Writes `y = ln x`.
pub fn log<E: Element>(services: &dyn Services, x: &[E], y: &mut [E]) {
    map(
        services,
        x,
        y,
        #[inline(always)]
        |x: E::Acc| x.ln(),
    );
}

/// Writes `y = 1 / (1 + e^-x)`.
pub fn sigmoid<E: Element>(services: &dyn Services, x: &[E], y: &mut [E]) {
    map(
        services,
        x,
        y,
        #[inline(always)]
        |x: E::Acc| E::Acc::ONE / (E::Acc::ONE + (-x).exp()),
    );
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

fn map<E: Element>(
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
        type Function = fn(&[f64], &mut [f64], &[f32], &mut [f32]);
        type Case<'a> = (Function, fn(f64) -> f64, &'a [f64]);
        let functions: [Case<'_>; 4] = [
            (
                |x, y, xf, yf| {
                    exp(&Serial, x, y);
                    exp(&Serial, xf, yf);
                },
                f64::exp,
                &x,
            ),
            (
                |x, y, xf, yf| {
                    log(&Serial, x, y);
                    log(&Serial, xf, yf);
                },
                f64::ln,
                &positive,
            ),
            (
                |x, y, xf, yf| {
                    sigmoid(&Serial, x, y);
                    sigmoid(&Serial, xf, yf);
                },
                |x| 1.0 / (1.0 + (-x).exp()),
                &x,
            ),
            (
                |x, y, xf, yf| {
                    rsqrt(&Serial, x, [0.25, 1.5], y);
                    rsqrt(&Serial, xf, [0.25, 1.5], yf);
                },
                |x| 1.0 / (0.25 * x + 1.5).sqrt(),
                &positive,
            ),
        ];
        for (run, expected, x) in functions {
            let (mut y, mut yf) = (vec![0.0; x.len()], vec![0f32; x.len()]);
            run(x, &mut y, &check::floats(x), &mut yf);
            let expected: Vec<f64> = x.iter().map(|&x| expected(x)).collect();
            assert_eq!(y, expected);
            check::close(&yf, &expected, 1e-6);
        }
        let mut narrow = [bf16::ZERO];
        exp(&Serial, &[bf16::from_f32(1.0)], &mut narrow);
        assert_eq!(narrow[0], bf16::from_f32(1f32.exp()));
    }

    #[test]
    fn threads_agree_and_extremes_are_finite() {
        let mut x = check::floats(&check::numbers(2 * CHUNK + 5, 1));
        (x[0], x[1]) = (-1e4, 1e4);
        let run = |services: &dyn Services| {
            let mut y = vec![0f32; x.len()];
            sigmoid(services, &x, &mut y);
            y
        };
        check::same_on_two_threads(run);
        assert_eq!(run(&Serial)[..2], [0.0, 1.0]);
    }
}
