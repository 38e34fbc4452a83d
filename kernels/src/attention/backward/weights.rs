//! A block of queries and some keys -> the weights of attention and the gradients of their logits.

use std::ops::Range;

use super::memory::{Queries, Weights};
use super::order::Place;
use super::task::Backward;
use crate::attention::softmax::whole_lanes;
use crate::attention::{KEYS, PANEL, factors, padded};
use crate::element::{Element, Real};
use crate::matmul::{Scalar, Side, Update, as_steps};
use crate::simd::vectorized;

impl<E: Element> Backward<'_, E>
where
    E::Acc: Scalar,
{
    /// The keys of `keys` that each row sees.
    #[inline(always)]
    fn seen_by(
        &self,
        place: &Place,
        keys: &Range<usize>,
        rows: Range<usize>,
    ) -> impl Iterator<Item = Range<usize>> {
        let (queries, len) = (place.queries.clone(), place.sequence.len());
        let mut query = queries.start + rows.start % queries.len();
        rows.map(move |_| {
            let seen = self.shape.within(keys, query, len);
            query += 1;
            if query == queries.end {
                query = queries.start;
            }
            seen
        })
    }

    /// The keys of `keys` that any of `rows` sees, from a whole panel's first on.
    fn seen(&self, place: &Place, keys: &Range<usize>, rows: Range<usize>) -> Range<usize> {
        let seen = self
            .seen_by(place, keys, rows)
            .filter(|seen| !seen.is_empty())
            .reduce(|all, seen| all.start.min(seen.start)..all.end.max(seen.end));
        seen.map_or(0..0, |seen| seen.start / PANEL * PANEL..seen.end)
    }

    /// Fills the block's weights and gradients of logits for some keys, as [`Backward::by_key`]
    /// reads them, and adds those keys' share to the gradients of its queries. `sides` are the keys
    /// and values for logits and gradients of weights, and the keys for the queries' gradients.
    pub fn weigh(
        &self,
        place: &Place,
        keys: &Range<usize>,
        block: &Queries<'_, E::Acc>,
        [k, v, k_rows]: &[Side<'_, E::Acc>; 3],
        results: &mut Weights<'_, E::Acc>,
    ) {
        let stride = padded(self.shape.head_dim);
        for panel in block.q.panels() {
            let rows = panel.range();
            let at = rows.start * KEYS..rows.end * KEYS;
            let weights = &mut results.weights[at.clone()];
            let dlogits = &mut results.dlogits[at];
            let seen = self.seen(place, keys, rows.clone());
            if seen.is_empty() {
                weights.fill(E::Acc::ZERO);
                dlogits.fill(E::Acc::ZERO);
                continue;
            }
            // One panel's logits stay in the first-level cache until they are used up.
            let set = Update::Overwrite;
            let to = (&mut *weights, KEYS);
            block.q.multiply(panel, k, seen.clone(), to, set);
            let to = (&mut *dlogits, KEYS);
            block.dout.multiply(panel, v, seen.clone(), to, set);
            let of_rows = (&mut *weights, &mut *dlogits);
            if self.isa == self.isa.vectors() {
                self.weigh_rows::<false>(place, keys, block, rows.clone(), of_rows);
            } else {
                self.weigh_rows::<true>(place, keys, block, rows.clone(), of_rows);
                as_steps(self.isa, weights, 0..KEYS);
                as_steps(self.isa, dlogits, 0..KEYS);
            }
            let to = (&mut results.dq[rows.start * stride..], stride);
            k_rows.add_rows((dlogits, panel.lanes), seen, to);
        }
    }

    /// Logits and gradients of weights of some rows, `[rows, KEYS]`, of the keys that they see ->
    /// weights and gradients of logits, 0 elsewhere.
    fn weigh_rows<const FUSED: bool>(
        &self,
        place: &Place,
        keys: &Range<usize>,
        block: &Queries<'_, E::Acc>,
        rows: Range<usize>,
        (weights, dlogits): (&mut [E::Acc], &mut [E::Acc]),
    ) {
        let shape = self.shape;
        let [_, factor] = factors::<E::Acc>(self.isa, shape);
        let all = weights
            .chunks_exact_mut(KEYS)
            .zip(dlogits.chunks_exact_mut(KEYS));
        vectorized(
            #[inline(always)]
            || {
                let seen = self.seen_by(place, keys, rows.clone());
                for ((row, seen), (weights, dlogits)) in rows.zip(seen).zip(all) {
                    let (lse, delta) = (block.lse[row], block.delta[row]);
                    let lanes = whole_lanes(&seen, KEYS);
                    if factor != E::Acc::ONE {
                        weights[lanes.clone()].iter_mut().for_each(|x| *x *= factor);
                    }
                    weights[seen.end..lanes.end].fill(E::Acc::NEG_INFINITY);
                    if let Some(softcap) = shape.softcap {
                        let softcap = E::Acc::from_f64(softcap);
                        let (weights, dlogits) =
                            (&mut weights[seen.clone()], &mut dlogits[seen.clone()]);
                        capped(weights, dlogits, softcap, lse, delta);
                    } else {
                        let dlogits = &mut dlogits[lanes.clone()];
                        for (weight, dlogit) in weights[lanes].iter_mut().zip(dlogits) {
                            *weight = if FUSED {
                                (*weight - lse).exp_fused()
                            } else {
                                (*weight - lse).exp_under_88()
                            };
                            *dlogit = *weight * (*dlogit - delta);
                        }
                    }
                    for side in [weights, dlogits] {
                        side[..seen.start].fill(E::Acc::ZERO);
                        side[seen.end..].fill(E::Acc::ZERO);
                    }
                }
            },
        );
    }
}

/// One row where logits are capped: the cap's slope is `1 - tanh^2`.
#[inline(always)]
fn capped<S: Real>(weights: &mut [S], dlogits: &mut [S], softcap: S, lse: S, delta: S) {
    for (weight, dlogit) in weights.iter_mut().zip(dlogits) {
        let tanh = (*weight / softcap).tanh();
        *weight = (softcap * tanh - lse).exp();
        *dlogit = *weight * (*dlogit - delta) * (S::ONE - tanh * tanh);
    }
}
