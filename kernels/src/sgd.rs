//! Gradients -> a step of SGD on params and their momentum buffer.
//!
//! The order of operations is that of `torch.optim.SGD` (`_single_tensor_sgd`) with dampening 0:
//! `g += weight_decay p`, `b = momentum b + g`, then `p -= lr (g + momentum b)` with Nesterov's
//! momentum, `p -= lr b` without. A buffer of zeros makes the first step's `b` the gradient, as
//! torch begins. The scalars are f64 and rounded once to the arithmetic's dtype.

use espalier_interface::Services;

use crate::element::{Element, Real, convert_real};
use crate::simd::vectorized;
use crate::split::{CHUNK, Parts};
use crate::stochastic::{AT_ONCE, Round};

/// The scalars of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// The step's learning rate.
    pub learning_rate: f64,
    /// Decay of the buffer.
    pub momentum: f64,
    /// Whether the gradient of the step counts once more than in the buffer.
    pub nesterov: bool,
    /// Weight decay, added to the gradient.
    pub weight_decay: f64,
    /// Factor on the gradient before anything else: clipping.
    pub gradient_scale: f64,
}

/// Updates `params`, and the momentum `buffer` where there is one, in the arithmetic of the
/// gradient's dtype.
///
/// # Shapes
/// All of `n` elements. What is narrower than f32 is widened, updated and rounded once: the buffer
/// to nearest, params by `rounding`.
#[allow(unsafe_code)] // Two outputs are cut into the same chunks.
pub fn sgd<P: Element, G: Element, M: Element>(
    services: &dyn Services,
    config: Sgd,
    rounding: impl Round<P>,
    grads: &[G],
    params: &mut [P],
    buffer: Option<&mut [M]>,
) {
    let n = params.len();
    assert!(grads.len() == n, "sgd: shapes disagree");
    if let Some(buffer) = &buffer {
        assert!(buffer.len() == n, "sgd: shapes disagree");
    }
    let scalars = Scalars::<G::Acc>::new(config);
    let params = Parts::new(params);
    let buffer = buffer.map(Parts::new);
    services.parallel_for(n.div_ceil(CHUNK), &|chunk| {
        let start = chunk * CHUNK;
        let count = CHUNK.min(n - start);
        let g = &grads[start..start + count];
        // SAFETY: chunks with different indices do not overlap, and each is called once.
        let p = unsafe { params.part(start, count) };
        // SAFETY: as above.
        let b = (buffer.as_ref()).map(|buffer| unsafe { buffer.part(start, count) });
        vectorized(
            #[inline(always)]
            move || {
                let mut buffers = b.map(|b| b.chunks_mut(AT_ONCE));
                let parts = p.chunks_mut(AT_ONCE).zip(g.chunks(AT_ONCE));
                for (index, (p, g)) in parts.enumerate() {
                    let mut results = [P::Acc::ZERO; AT_ONCE];
                    let results = &mut results[..p.len()];
                    let elements = p.iter().zip(g).zip(&mut *results);
                    match buffers.as_mut().and_then(Iterator::next) {
                        Some(b) => {
                            for (((p, &g), result), b) in elements.zip(b) {
                                let mut buffer = convert_real(b.load());
                                let x =
                                    scalars.heavy(convert_real(p.load()), &mut buffer, g.load());
                                *b = M::store(convert_real(buffer));
                                *result = convert_real(x);
                            }
                        }
                        None => {
                            for ((p, &g), result) in elements {
                                let x = scalars.light(convert_real(p.load()), g.load());
                                *result = convert_real(x);
                            }
                        }
                    }
                    rounding.store(start + index * AT_ONCE, results, p);
                }
            },
        );
    });
}

/// The step's scalars in the arithmetic's dtype.
#[derive(Clone, Copy)]
struct Scalars<R> {
    step_size: R,
    momentum: R,
    /// Factors of the gradient and of the buffer in the step.
    of_gradient: R,
    of_buffer: R,
    weight_decay: R,
    gradient_scale: R,
}

impl<R: Real> Scalars<R> {
    fn new(c: Sgd) -> Self {
        let (of_gradient, of_buffer) = if c.nesterov {
            (1.0, c.momentum)
        } else {
            (0.0, 1.0)
        };
        Scalars {
            step_size: R::from_f64(-c.learning_rate),
            momentum: R::from_f64(c.momentum),
            of_gradient: R::from_f64(of_gradient),
            of_buffer: R::from_f64(of_buffer),
            weight_decay: R::from_f64(c.weight_decay),
            gradient_scale: R::from_f64(c.gradient_scale),
        }
    }

    /// The clipped gradient with weight decay.
    #[inline(always)]
    fn decayed(&self, p: R, g: R) -> R {
        g * self.gradient_scale + self.weight_decay * p
    }

    /// The param after a step without momentum.
    #[inline(always)]
    fn light(&self, p: R, g: R) -> R {
        p + self.step_size * self.decayed(p, g)
    }

    /// The param after a step with momentum; `b` is updated in place.
    #[inline(always)]
    fn heavy(&self, p: R, b: &mut R, g: R) -> R {
        let g = self.decayed(p, g);
        *b = *b * self.momentum + g;
        p + self.step_size * (self.of_gradient * g + self.of_buffer * *b)
    }
}

#[cfg(test)]
mod tests {
    use espalier_interface::Serial;

    use super::*;
    use crate::check;
    use crate::stochastic::ToNearest;

    const CONFIG: Sgd = Sgd {
        learning_rate: 1e-2,
        momentum: 0.9,
        nesterov: false,
        weight_decay: 0.05,
        gradient_scale: 1.0,
    };

    #[test]
    fn three_steps_by_hand() {
        // Gradients 1, 1, 1 without decay: b = 1, 1.9, 2.71.
        let mut p = [2.0f64];
        let mut b = [0.0f64];
        let config = Sgd {
            weight_decay: 0.0,
            ..CONFIG
        };
        for expected in [1.99, 1.971, 1.9439] {
            sgd(
                &Serial,
                config,
                ToNearest,
                &[1.0f64],
                &mut p,
                Some(&mut b[..]),
            );
            assert!(
                (p[0] - expected).abs() < 1e-15,
                "{} is not {expected}",
                p[0]
            );
        }
        let (mut p, mut b) = ([2.0f64], [1.0f64]);
        let config = Sgd {
            nesterov: true,
            gradient_scale: 0.5,
            ..CONFIG
        };
        // g = 0.5 + 0.1, b = 1.5, and a step of 0.6 + 1.35.
        sgd(
            &Serial,
            config,
            ToNearest,
            &[1.0f64],
            &mut p,
            Some(&mut b[..]),
        );
        assert!((p[0] - 1.9805).abs() < 1e-15 && b == [1.5], "{p:?}, {b:?}");
    }

    #[test]
    fn threads_agree_and_no_momentum_needs_no_buffer() {
        let n = CHUNK + 77;
        let g = check::floats(&check::numbers(n, 1));
        let start = check::floats(&check::numbers(n, 2));
        let run = |services: &dyn Services, momentum: f64, mut buffer: Option<Vec<f32>>| {
            let mut p = start.clone();
            let config = Sgd { momentum, ..CONFIG };
            sgd(
                services,
                config,
                ToNearest,
                &g,
                &mut p,
                buffer.as_deref_mut(),
            );
            (p, buffer)
        };
        check::same_on_two_threads(|services| run(services, 0.9, Some(start.clone())));
        let (without, _) = run(&Serial, 0.0, None);
        let (with, buffer) = run(&Serial, 0.0, Some(vec![0.0; n]));
        assert_eq!(without, with);
        assert!(buffer.is_some_and(|buffer| buffer != start));
    }
}
