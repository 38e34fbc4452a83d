//! Gradients -> a step of AdamW on params and their moments.
//!
//! The order of operations is that of `torch.optim.AdamW` (`_single_tensor_adamw`). Decay, first
//! moment by `lerp`, second moment, `denom = sqrt(v) / sqrt(1 - beta2^t) + eps`, `p -= lr / (1 -
//! beta1^t) * m / denom`. The scalars are f64 and rounded once to the arithmetic's dtype.

use espalier_interface::Services;

use crate::element::{Element, Real, convert_real};
use crate::simd::vectorized;
use crate::split::{CHUNK, Parts};
use crate::stochastic::{AT_ONCE, Round};

/// The scalars of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adamw {
    /// The step's learning rate.
    pub learning_rate: f64,
    /// Decay rates of the two moments.
    pub betas: [f64; 2],
    /// Added to the denominator.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// The step's number, from 1.
    pub step: u64,
    /// Factor on the gradient before anything else: clipping.
    pub gradient_scale: f64,
}

/// Updates `params` and both moments in the arithmetic of the gradient's dtype.
///
/// # Shapes
/// All of `n` elements. What is narrower than f32 is widened, updated and rounded once: moments to
/// nearest, params by `rounding`. The param is updated by the moments before they are rounded, as
/// in torch's AdamW with `fused=True`.
#[allow(unsafe_code)] // Three outputs are cut into the same chunks.
pub fn adamw<P: Element, G: Element, M: Element>(
    services: &dyn Services,
    config: Adamw,
    rounding: impl Round<P>,
    grads: &[G],
    params: &mut [P],
    first_moment: &mut [M],
    second_moment: &mut [M],
) {
    let n = params.len();
    assert!(
        grads.len() == n && first_moment.len() == n,
        "adamw: shapes disagree"
    );
    assert!(second_moment.len() == n, "adamw: shapes disagree");
    let params = Parts::new(params);
    let (ms, vs) = (Parts::new(first_moment), Parts::new(second_moment));
    let scalars = Scalars::<G::Acc>::new(config);
    services.parallel_for(n.div_ceil(CHUNK), &|chunk| {
        let start = chunk * CHUNK;
        let count = CHUNK.min(n - start);
        // SAFETY: chunks with different indices do not overlap, and each is called once.
        let (p, m, v) = unsafe {
            (
                params.part(start, count),
                ms.part(start, count),
                vs.part(start, count),
            )
        };
        let g = &grads[start..start + count];
        vectorized(
            #[inline(always)]
            move || {
                let moments = m.chunks_mut(AT_ONCE).zip(v.chunks_mut(AT_ONCE));
                let parts = p.chunks_mut(AT_ONCE).zip(g.chunks(AT_ONCE)).zip(moments);
                for (index, ((p, g), (m, v))) in parts.enumerate() {
                    let mut results = [P::Acc::ZERO; AT_ONCE];
                    let results = &mut results[..p.len()];
                    let elements = p.iter().zip(m).zip(v).zip(g).zip(&mut *results);
                    for ((((p, m), v), &g), result) in elements {
                        let mut moments = [convert_real(m.load()), convert_real(v.load())];
                        let [first, second] = &mut moments;
                        let x = scalars.update(convert_real(p.load()), first, second, g.load());
                        [*m, *v] = moments.map(|x| M::store(convert_real(x)));
                        *result = convert_real(x);
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
    keep: R,
    beta2: R,
    rest1: R,
    rest2: R,
    lerp_from_end: bool,
    correction: R,
    eps: R,
    step_size: R,
    gradient_scale: R,
}

impl<R: Real> Scalars<R> {
    fn new(c: Adamw) -> Self {
        let [beta1, beta2] = c.betas;
        let correction1 = 1.0 - beta1.powf(c.step as f64);
        let correction2 = 1.0 - beta2.powf(c.step as f64);
        let rest1 = 1.0 - beta1;
        // torch's lerp starts from the nearer end.
        let lerp_from_end = rest1 >= 0.5;
        Scalars {
            keep: R::from_f64(1.0 - c.learning_rate * c.weight_decay),
            beta2: R::from_f64(beta2),
            rest1: R::from_f64(if lerp_from_end { 1.0 - rest1 } else { rest1 }),
            rest2: R::from_f64(1.0 - beta2),
            lerp_from_end,
            correction: R::from_f64(correction2.sqrt()),
            eps: R::from_f64(c.eps),
            step_size: R::from_f64(-(c.learning_rate / correction1)),
            gradient_scale: R::from_f64(c.gradient_scale),
        }
    }

    /// The param after the step; `m` and `v` are updated in place.
    #[inline(always)]
    fn update(&self, p: R, m: &mut R, v: &mut R, g: R) -> R {
        let g = g * self.gradient_scale;
        let p = p * self.keep;
        let difference = g - *m;
        *m = if self.lerp_from_end {
            g - difference * self.rest1
        } else {
            *m + self.rest1 * difference
        };
        *v = *v * self.beta2 + self.rest2 * g * g;
        let denominator = v.sqrt() / self.correction + self.eps;
        p + self.step_size * *m / denominator
    }
}

#[cfg(test)]
mod tests;
