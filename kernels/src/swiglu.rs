//! Gate and up rows -> `silu(gate) * up`, and the gradients of both.
//!
//! `s = 1 / (1 + e^-g)`, `y = g s u`; `dg = dy u s (1 + g (1 - s))`, `du = dy g s`.

use espalier_interface::Services;

use crate::element::{Element, Real};
use crate::simd::vectorized;
use crate::split::{CHUNK, chunks_mut, rows_mut2};

#[inline(always)]
fn sigmoid<R: Real>(x: R) -> R {
    R::ONE / (R::ONE + (-x).exp())
}

/// Writes `y = silu(gate) * up`, rounded once.
///
/// # Shapes
/// All `[T, F]`.
pub fn swiglu<E: Element>(services: &dyn Services, gate: &[E], up: &[E], y: &mut [E]) {
    assert!(
        gate.len() == y.len() && up.len() == y.len(),
        "swiglu: shapes disagree"
    );
    chunks_mut(services, y, CHUNK, |start, y| {
        vectorized(
            #[inline(always)]
            move || {
                let end = start + y.len();
                for ((y, &g), &u) in y.iter_mut().zip(&gate[start..end]).zip(&up[start..end]) {
                    let g = g.load();
                    *y = E::store(g * sigmoid(g) * u.load());
                }
            },
        );
    });
}

/// Writes the gradients of `gate` and `up`.
///
/// # Shapes
/// All `[T, F]`.
pub fn swiglu_backward<E: Element>(
    services: &dyn Services,
    gate: &[E],
    up: &[E],
    dy: &[E],
    dgate: &mut [E],
    dup: &mut [E],
) {
    let n = dgate.len();
    assert!(
        gate.len() == n && up.len() == n && dy.len() == n,
        "swiglu_backward: shapes disagree"
    );
    rows_mut2(
        services,
        (dgate, dup),
        [1, 1],
        CHUNK,
        |start, dgate, dup| {
            vectorized(
                #[inline(always)]
                move || {
                    let end = start + dgate.len();
                    let (gate, up, dy) = (&gate[start..end], &up[start..end], &dy[start..end]);
                    let inputs = gate.iter().zip(up).zip(dy);
                    for ((dg, du), ((&g, &u), &dy)) in dgate.iter_mut().zip(dup).zip(inputs) {
                        let (g, u, dy) = (g.load(), u.load(), dy.load());
                        let s = sigmoid(g);
                        *dg = E::store(dy * u * s * (E::Acc::ONE + g * (E::Acc::ONE - s)));
                        *du = E::store(dy * g * s);
                    }
                },
            );
        },
    );
}

#[cfg(test)]
mod tests {
    use espalier_interface::Serial;

    use super::*;
    use crate::check;

    fn forward(gate: &[f64], up: &[f64]) -> Vec<f64> {
        let mut y = vec![0.0; gate.len()];
        swiglu(&Serial, gate, up, &mut y);
        y
    }

    #[test]
    fn gradients_are_the_differences() {
        let n = 50;
        let (g, u, dy) = (
            check::numbers(n, 1),
            check::numbers(n, 2),
            check::numbers(n, 3),
        );
        let (mut dg, mut du) = (vec![0.0; n], vec![0.0; n]);
        swiglu_backward(&Serial, &g, &u, &dy, &mut dg, &mut du);
        check::gradient(|g| check::dot(&forward(g, &u), &dy), &g, &dg);
        check::gradient(|u| check::dot(&forward(&g, u), &dy), &u, &du);
    }

    #[test]
    fn f32_and_threads_agree_and_extremes_are_finite() {
        let n = 2 * CHUNK + 5;
        let (mut g, u) = (check::numbers(n, 1), check::numbers(n, 2));
        (g[0], g[1]) = (-1e4, 1e4);
        let (gf, uf) = (check::floats(&g), check::floats(&u));
        let run = |services: &dyn Services| {
            let (mut y, mut dg, mut du) = (vec![0f32; n], vec![0f32; n], vec![0f32; n]);
            swiglu(services, &gf, &uf, &mut y);
            swiglu_backward(services, &gf, &uf, &uf, &mut dg, &mut du);
            (y, dg, du)
        };
        check::same_on_two_threads(run);
        let (y, dg, du) = run(&Serial);
        check::close(&y, &forward(&g, &u), 1e-6);
        assert!(y.iter().chain(&dg).chain(&du).all(|v| v.is_finite()));
    }
}
