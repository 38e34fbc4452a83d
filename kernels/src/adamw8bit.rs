//! Gradients -> a step of AdamW on params whose moments are 8-bit codes with an absmax per block.
//!
//! # Source
//! bitsandbytes 0.50.2 on the CPU (`backends/cpu/ops.py`, `_optimizer_update_8bit_blockwise_cpu`),
//! whose order of operations it has: moments, decay, `denom = sqrt(v) / sqrt(1 - beta2^t) + eps`,
//! `p -= lr / (1 - beta1^t) m / denom`, with the moments before they are coded again. The last
//! operation of each moment is fused there (torch's `add` with a factor and `addcmul`), so it is
//! here. Its CUDA kernel differs: it decays after the update, takes the nearest value of a map
//! instead of a step of [-1, 1], keeps the sign of the first moment, and leaves out an element
//! whose gradient is not finite.

use espalier_interface::Services;
use espalier_interface::dynamic_map::{DynamicMap, SIGNED, UNSIGNED, step_fused};
use espalier_interface::op::ADAMW8BIT_BLOCK;

use crate::adamw::Adamw;
use crate::element::{Element, Real, convert_real};
use crate::simd::vectorized;
use crate::split::{CHUNK, Parts};
use crate::stochastic::{AT_ONCE, Round};

const BLOCK: usize = ADAMW8BIT_BLOCK as usize;
// A block is rounded at once.
const _: () = assert!(BLOCK == AT_ONCE);

/// Lanes of a maximum.
const LANES: usize = 16;

/// A moment of `n` elements.
pub struct Coded<'a, R> {
    /// A code for each element, [n].
    pub codes: &'a mut [u8],
    /// The largest magnitude of each block, [ceil(n / 256)].
    pub absmax: &'a mut [R],
}

/// Updates `params` and both moments in the arithmetic of the gradient's dtype. Blocks are counted
/// from the first element.
///
/// # Shapes
/// `grads` and `params` of `n` elements. A param narrower than f32 is widened, updated and rounded
/// once, by `rounding`.
#[allow(unsafe_code)] // Five outputs are cut into the same chunks.
pub fn adamw8bit<P: Element, G: Element>(
    services: &dyn Services,
    config: Adamw,
    rounding: impl Round<P>,
    grads: &[G],
    params: &mut [P],
    first: Coded<'_, G::Acc>,
    second: Coded<'_, G::Acc>,
) {
    let n = params.len();
    assert!(grads.len() == n, "adamw8bit: shapes disagree");
    for moment in [&first, &second] {
        assert!(moment.codes.len() == n, "adamw8bit: shapes disagree");
        let blocks = moment.absmax.len();
        assert!(blocks == n.div_ceil(BLOCK), "adamw8bit: shapes disagree");
    }
    let params = Parts::new(params);
    let [first, second] =
        [first, second].map(|moment| (Parts::new(moment.codes), Parts::new(moment.absmax)));
    let scalars = Scalars::<G::Acc>::new(config);
    services.parallel_for(n.div_ceil(CHUNK), &|chunk| {
        let start = chunk * CHUNK;
        let count = CHUNK.min(n - start);
        let (block, blocks) = (start / BLOCK, count.div_ceil(BLOCK));
        // SAFETY: chunks with different indices do not overlap, each is called once, and each
        // begins with a block.
        let (p, m, v) = unsafe {
            (
                params.part(start, count),
                (first.0.part(start, count), first.1.part(block, blocks)),
                (second.0.part(start, count), second.1.part(block, blocks)),
            )
        };
        let g = &grads[start..start + count];
        vectorized(
            #[inline(always)]
            move || {
                let moments =
                    m.0.chunks_mut(BLOCK)
                        .zip(m.1)
                        .zip(v.0.chunks_mut(BLOCK).zip(v.1));
                let parts = p.chunks_mut(BLOCK).zip(g.chunks(BLOCK)).zip(moments);
                for (index, ((p, g), (m, v))) in parts.enumerate() {
                    let mut results = [P::Acc::ZERO; BLOCK];
                    let results = &mut results[..p.len()];
                    scalars.update_block((p, results), g, m, v);
                    rounding.store(start + index * BLOCK, results, p);
                }
            },
        );
    });
}

/// A block's codes and absmax.
type Block<'a, R> = (&'a mut [u8], &'a mut R);

/// The step's scalars in the arithmetic's dtype.
#[derive(Clone, Copy)]
struct Scalars<R> {
    keep: R,
    beta1: R,
    beta2: R,
    rest1: R,
    rest2: R,
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
        Scalars {
            keep: R::from_f64(1.0 - c.learning_rate * c.weight_decay),
            beta1: R::from_f64(beta1),
            beta2: R::from_f64(beta2),
            rest1: R::from_f64(1.0 - beta1),
            rest2: R::from_f64(1.0 - beta2),
            correction: R::from_f64(correction2.sqrt()),
            eps: R::from_f64(c.eps),
            step_size: R::from_f64(-(c.learning_rate / correction1)),
            gradient_scale: R::from_f64(c.gradient_scale),
        }
    }

    /// Updates a block, of at most [`BLOCK`] elements: the params' results are not yet rounded.
    #[inline(always)]
    fn update_block<P: Element, G: Element<Acc = R>>(
        &self,
        (params, results): (&[P], &mut [P::Acc]),
        grads: &[G],
        (m_codes, m_absmax): Block<'_, R>,
        (v_codes, v_absmax): Block<'_, R>,
    ) {
        // What is beyond a short block stays zero.
        let (mut m, mut v) = ([R::ZERO; BLOCK], [R::ZERO; BLOCK]);
        decode(&SIGNED, m_codes, *m_absmax, &mut m);
        decode(&UNSIGNED, v_codes, *v_absmax, &mut v);
        let moments = m.iter_mut().zip(&mut v);
        let elements = params.iter().zip(grads).zip(moments).zip(results);
        for (((p, &g), (m, v)), result) in elements {
            let g = g.load() * self.gradient_scale;
            *m = g.mul_add(self.rest1, *m * self.beta1);
            *v = (g * self.rest2).mul_add(g, *v * self.beta2);
            let denominator = v.sqrt() / self.correction + self.eps;
            let x: R = convert_real(p.load());
            let x = x * self.keep + self.step_size * *m / denominator;
            *result = convert_real(x);
        }
        *m_absmax = encode(&SIGNED, &m, m_codes);
        *v_absmax = encode(&UNSIGNED, &v, v_codes);
    }
}

/// The numbers of a block's codes.
#[inline(always)]
fn decode<R: Real>(map: &DynamicMap, codes: &[u8], absmax: R, numbers: &mut [R; BLOCK]) {
    for (number, &code) in numbers.iter_mut().zip(codes) {
        let value: R = convert_real(map.values[usize::from(code)]);
        *number = value * absmax;
    }
}

/// Writes the codes of a block, and gives its absmax. A NaN counts as the smallest number, and the
/// codes of an all-zero block are 0, both as in the peer.
#[inline(always)]
fn encode<R: Real>(map: &DynamicMap, numbers: &[R; BLOCK], codes: &mut [u8]) -> R {
    let mut largest = [R::ZERO; LANES];
    for lanes in numbers.as_chunks::<LANES>().0 {
        for (largest, &x) in largest.iter_mut().zip(lanes) {
            *largest = largest.larger(x).larger(-x);
        }
    }
    let absmax = (largest.into_iter()).fold(R::ZERO, |absmax, lane| absmax.larger(lane));
    if absmax == R::ZERO {
        codes.fill(0);
        return absmax;
    }
    let inverse = R::ONE / absmax;
    let mut steps = [0; BLOCK];
    for (step_of, &x) in steps.iter_mut().zip(numbers) {
        *step_of = step_fused(convert_real(x * inverse));
    }
    for (code, &step) in codes.iter_mut().zip(&steps) {
        *code = map.code(step);
    }
    absmax
}

#[cfg(test)]
mod tests;
