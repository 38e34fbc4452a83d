//! Gate and up rows -> `silu(gate) * up` or `gelu(gate) * up`, and the gradients of both.
//!
//! `s = 1 / (1 + e^-z)`, `y = g s u`; `dg = dy u s (1 + g z' (1 - s))`, `du = dy g s`. SwiGLU has
//! `z = g`; GELU's approximation by the hyperbolic tangent has `z = 2 k (g + c g^3)`
//! ([`GELU_SLOPE`], [`GELU_CUBE`]).

use espalier_interface::Services;
use espalier_interface::op::{GELU_CUBE, GELU_SLOPE};

use crate::element::{Element, Real};
use crate::rounded::{both_rounded, rounded};
use crate::simd::vectorized;
use crate::split::{CHUNK, chunks_mut, rows_mut2};

/// The argument of a gate's sigmoid.
pub(crate) trait Gate: Copy + Sync {
    /// `z` of `g`.
    fn argument<R: Real>(self, g: R) -> R;
    /// `g z'`.
    fn slope<R: Real>(self, g: R) -> R;
}

/// `z = g`.
#[derive(Clone, Copy)]
struct Silu;

impl Gate for Silu {
    #[inline(always)]
    fn argument<R: Real>(self, g: R) -> R {
        g
    }
    #[inline(always)]
    fn slope<R: Real>(self, g: R) -> R {
        g
    }
}

/// `z = 2 k g (1 + c g^2)`.
#[derive(Clone, Copy)]
pub(crate) struct TanhGate;

impl Gate for TanhGate {
    #[inline(always)]
    fn argument<R: Real>(self, g: R) -> R {
        let bend = R::ONE + R::from_f64(GELU_CUBE) * (g * g);
        R::from_f64(GELU_SLOPE) * g * bend
    }
    #[inline(always)]
    fn slope<R: Real>(self, g: R) -> R {
        let bend = R::ONE + R::from_f64(3.0 * GELU_CUBE) * (g * g);
        R::from_f64(GELU_SLOPE) * g * bend
    }
}

/// Writes `y = silu(gate) * up`, rounded once.
///
/// # Shapes
/// All `[T, F]`.
pub fn swiglu<E: Element>(services: &dyn Services, gate: &[E], up: &[E], y: &mut [E]) {
    gated(services, Silu, gate, up, y);
}

/// Writes `y = gelu(gate) * up`, rounded once.
///
/// # Shapes
/// All `[T, F]`.
pub fn geglu_tanh<E: Element>(services: &dyn Services, gate: &[E], up: &[E], y: &mut [E]) {
    gated(services, TanhGate, gate, up, y);
}

fn gated<E: Element>(services: &dyn Services, form: impl Gate, gate: &[E], up: &[E], y: &mut [E]) {
    assert!(
        gate.len() == y.len() && up.len() == y.len(),
        "a gate's shapes disagree"
    );
    chunks_mut(services, y, CHUNK, |start, y| {
        vectorized(
            #[inline(always)]
            move || {
                let (gate, up) = (&gate[start..][..y.len()], &up[start..][..y.len()]);
                rounded(
                    y,
                    #[inline(always)]
                    |at, values| {
                        let inputs = gate[at.clone()].iter().zip(&up[at]);
                        for (value, (&g, &u)) in values.iter_mut().zip(inputs) {
                            let g = g.load();
                            *value = g * form.argument(g).sigmoid() * u.load();
                        }
                    },
                );
            },
        );
    });
}

/// Writes the gradients of `gate` and `up` of [`swiglu`].
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
    gated_backward(services, Silu, [gate, up, dy], [dgate, dup]);
}

/// Writes the gradients of `gate` and `up` of [`geglu_tanh`].
///
/// # Shapes
/// All `[T, F]`.
pub fn geglu_tanh_backward<E: Element>(
    services: &dyn Services,
    gate: &[E],
    up: &[E],
    dy: &[E],
    dgate: &mut [E],
    dup: &mut [E],
) {
    gated_backward(services, TanhGate, [gate, up, dy], [dgate, dup]);
}

fn gated_backward<E: Element>(
    services: &dyn Services,
    form: impl Gate,
    [gate, up, dy]: [&[E]; 3],
    [dgate, dup]: [&mut [E]; 2],
) {
    let n = dgate.len();
    assert!(
        gate.len() == n && up.len() == n && dy.len() == n,
        "a gate's shapes disagree"
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
                    both_rounded(
                        dgate,
                        dup,
                        #[inline(always)]
                        |at, dgate, dup| {
                            let inputs = gate[at.clone()].iter().zip(&up[at.clone()]);
                            let inputs = inputs.zip(&dy[at]);
                            let outputs = dgate.iter_mut().zip(dup);
                            for ((dg, du), ((&g, &u), &dy)) in outputs.zip(inputs) {
                                let (g, u, dy) = (g.load(), u.load(), dy.load());
                                let s = form.argument(g).sigmoid();
                                let slope = E::Acc::ONE + form.slope(g) * (E::Acc::ONE - s);
                                *dg = dy * u * s * slope;
                                *du = dy * g * s;
                            }
                        },
                    );
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

    fn forward(form: impl Gate, gate: &[f64], up: &[f64]) -> Vec<f64> {
        let mut y = vec![0.0; gate.len()];
        gated(&Serial, form, gate, up, &mut y);
        y
    }

    #[test]
    fn gradients_are_the_differences() {
        gradients(Silu);
        gradients(TanhGate);
    }

    fn gradients(form: impl Gate) {
        let n = 50;
        let (g, u, dy) = (
            check::numbers(n, 1),
            check::numbers(n, 2),
            check::numbers(n, 3),
        );
        let (mut dg, mut du) = (vec![0.0; n], vec![0.0; n]);
        gated_backward(&Serial, form, [&g, &u, &dy], [&mut dg, &mut du]);
        check::gradient(|g| check::dot(&forward(form, g, &u), &dy), &g, &dg);
        check::gradient(|u| check::dot(&forward(form, &g, u), &dy), &u, &du);
    }

    #[test]
    fn f32_and_threads_agree_and_extremes_are_finite() {
        agreement(Silu);
        agreement(TanhGate);
    }

    fn agreement(form: impl Gate) {
        let n = 2 * CHUNK + 5;
        let (mut g, u) = (check::numbers(n, 1), check::numbers(n, 2));
        (g[0], g[1]) = (-1e4, 1e4);
        let (gf, uf) = (check::floats(&g), check::floats(&u));
        let run = |services: &dyn Services| {
            let (mut y, mut dg, mut du) = (vec![0f32; n], vec![0f32; n], vec![0f32; n]);
            gated(services, form, &gf, &uf, &mut y);
            gated_backward(services, form, [&gf, &uf, &uf], [&mut dg, &mut du]);
            (y, dg, du)
        };
        check::same_on_two_threads(run);
        let (y, dg, du) = run(&Serial);
        check::close(&y, &forward(form, &g, &u), 1e-6);
        assert!(y.iter().chain(&dg).chain(&du).all(|v| v.is_finite()));
    }

    #[test]
    fn gelu_is_its_formula_by_the_hyperbolic_tangent() {
        let (g, u) = (check::numbers(50, 1), check::numbers(50, 2));
        let root = (2.0 / std::f64::consts::PI).sqrt();
        let by_tanh = g.iter().zip(&u).map(|(g, u)| {
            let inner = root * (g + 0.044715 * g.powi(3));
            0.5 * g * (1.0 + inner.tanh()) * u
        });
        for (found, expected) in forward(TanhGate, &g, &u).iter().zip(by_tanh) {
            assert!((found - expected).abs() < 1e-15, "{found}, {expected}");
        }
    }
}
