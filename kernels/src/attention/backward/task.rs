//! A block of queries and a key/value head -> its queries' gradients, and its share of those of
//! the keys and values that it sees.
#![allow(unsafe_code)] // Disjoint parts of the outputs and of the sums on several threads.

use std::ops::Range;

use super::order::{Place, Turn};
use crate::attention::softmax::{dot, whole_lanes};
use crate::attention::{AttentionShape, Inputs, KEYS, factors, gather};
use crate::element::{Element, Real};
use crate::matmul::{Dense, Isa, Operand, Scalar, Update, multiply_into, space};
use crate::simd::vectorized;
use crate::split::Parts;

/// Elements that a task needs. They are queries, their gradients and the output's; weights and
/// their gradients; two numbers per row; the product's.
pub fn share<S: Scalar>(shape: &AttentionShape) -> usize {
    let rows = shape.queries() * shape.group();
    rows * (3 * shape.head_dim + 2 * KEYS + 2) + space::<S>()
}

/// The state that all tasks share.
pub struct Backward<'a, E: Element> {
    pub isa: Isa,
    pub shape: &'a AttentionShape,
    pub inputs: Inputs<'a, E>,
    pub dout: &'a [E],
    pub out: &'a [E],
    pub lse: &'a [E::Acc],
    pub dq: Parts<'a, E>,
    pub dk: Parts<'a, E>,
    pub dv: Parts<'a, E>,
}

/// A block of queries of one group of heads, `[group, count]` rows, with its intermediate results.
struct Queries<'a, S> {
    /// Times their factor, `[rows, K]`.
    q: &'a mut [S],
    /// Gradient of the output, `[rows, K]`.
    dout: &'a mut [S],
    /// Gradient of the unscaled queries before it is scaled, `[rows, K]`.
    dq: &'a mut [S],
    /// Log-sum-exp of the logits, `[rows]`.
    lse: &'a mut [S],
    /// `dout . out`, `[rows]`.
    delta: &'a mut [S],
    /// Logits, then weights, `[rows, KEYS]`.
    weights: &'a mut [S],
    /// Gradients of weights, then of logits, `[rows, KEYS]`.
    dlogits: &'a mut [S],
}

impl<S: Scalar> Queries<'_, S> {
    /// A block of at most `rows` rows in the front of `memory`, and the rest of it.
    fn new(memory: &mut [S], rows: usize, width: usize) -> (Queries<'_, S>, &mut [S]) {
        let mut rest = memory;
        let mut take = |count: usize| {
            let (taken, after) = std::mem::take(&mut rest).split_at_mut(count);
            rest = after;
            taken
        };
        let block = Queries {
            q: take(rows * width),
            dout: take(rows * width),
            dq: take(rows * width),
            lse: take(rows),
            delta: take(rows),
            weights: take(rows * KEYS),
            dlogits: take(rows * KEYS),
        };
        (block, rest)
    }
}

impl<E: Element> Backward<'_, E>
where
    E::Acc: Scalar,
{
    /// The gradients of the queries at `place`, and their share of those of keys and values.
    ///
    /// `sums` are `[2, J, T, K]`: the gradients of all keys and values so far. The first task that
    /// sees a block of keys clears its sums, the last one writes them to the outputs.
    pub fn backward(
        &self,
        place: Place,
        turn: Turn<'_>,
        sums: &Parts<'_, E::Acc>,
        memory: &mut [E::Acc],
    ) {
        let shape = self.shape;
        let (queries, len) = (place.queries.clone(), place.sequence.len());
        let most = shape.queries() * shape.group();
        let (mut block, memory) = Queries::new(memory, most, shape.head_dim);
        self.load(&place, &mut block);
        let seen_before = match queries.start.checked_sub(shape.queries()) {
            Some(start) => shape.block_range(start..queries.start, len).end,
            None => 0,
        };
        let seen_later = if queries.end < len {
            let later = queries.end..(queries.end + shape.queries()).min(len);
            shape.block_range(later, len).start
        } else {
            usize::MAX
        };
        for keys in shape.blocks(queries, len) {
            self.weigh(&place, &keys, &mut block, memory);
            let idx = keys.start / KEYS;
            let all = keys.start..(keys.start + KEYS).min(len);
            let range = |side: usize| {
                let tokens = self.inputs.k.len() / shape.kv_width();
                let row = (side * shape.kv_heads + place.head) * tokens + place.sequence.start;
                (row + all.start) * shape.head_dim
            };
            turn.wait_for(idx);
            let size = all.len() * shape.head_dim;
            // SAFETY: tasks of other sequences or heads have other sums. Of those of the same one,
            // each had this block of keys until `finish`, one after the other.
            let (dk, dv) = unsafe { (sums.part(range(0), size), sums.part(range(1), size)) };
            if idx >= seen_before {
                dk.fill(E::Acc::ZERO);
                dv.fill(E::Acc::ZERO);
            }
            self.add_to_keys(&place, &keys, &block, (&mut *dk, &mut *dv), memory);
            if idx < seen_later {
                self.store_keys(&place, all, (dk, dv));
            }
            turn.finish(idx);
            self.add_to_queries(&place, &keys, &mut block, memory);
        }
        self.store_queries(&place, &block);
    }

    /// Keys or values of a block, `[keys, K]`.
    fn keys<'b>(&self, of: &'b [E], place: &Place, keys: &Range<usize>) -> Dense<'b, E> {
        let (width, stride) = (self.shape.head_dim, self.shape.kv_width());
        let at = (place.sequence.start + keys.start) * stride + place.head * width;
        Dense::strided(&of[at..], keys.len(), width, stride)
    }

    /// Rows of a block: its heads times its queries.
    fn rows(&self, place: &Place) -> usize {
        self.shape.group() * place.queries.len()
    }

    /// Reads a block of queries.
    fn load(&self, place: &Place, block: &mut Queries<'_, E::Acc>) {
        let shape = self.shape;
        let (width, group, count) = (shape.head_dim, shape.group(), place.queries.len());
        let start = place.sequence.start + place.queries.start;
        let first_head = place.head * group;
        let from = (
            start * shape.q_width() + first_head * width,
            shape.q_width(),
        );
        let sizes = [group, count, width];
        let [of_queries, _] = factors(self.isa, shape);
        gather(self.inputs.q, from, sizes, of_queries, block.q);
        gather(self.dout, from, sizes, E::Acc::ONE, block.dout);
        block.dq.fill(E::Acc::ZERO);
        vectorized(
            #[inline(always)]
            || {
                for row in 0..group * count {
                    let (token, head) = (start + row % count, first_head + row / count);
                    block.lse[row] = self.lse[token * shape.heads + head];
                    let at = token * shape.q_width() + head * width;
                    let out = &self.out[at..at + width];
                    let dout = &block.dout[row * width..(row + 1) * width];
                    block.delta[row] = dot(dout, out);
                }
            },
        );
    }

    /// Fills the block's weights and gradients of logits for some keys.
    fn weigh(
        &self,
        place: &Place,
        keys: &Range<usize>,
        block: &mut Queries<'_, E::Acc>,
        memory: &mut [E::Acc],
    ) {
        let shape = self.shape;
        let (width, rows) = (shape.head_dim, self.rows(place));
        let k = self.keys(self.inputs.k, place, keys);
        let v = self.keys(self.inputs.v, place, keys);
        let q = Dense::new(&block.q[..rows * width], rows, width);
        let dout = Dense::new(&block.dout[..rows * width], rows, width);
        let set = Update::Overwrite;
        let sides = (Operand::over_cols(&q), Operand::over_cols(&k));
        multiply_into(self.isa, sides, (block.weights, KEYS), set, memory);
        let sides = (Operand::over_cols(&dout), Operand::over_cols(&v));
        multiply_into(self.isa, sides, (block.dlogits, KEYS), set, memory);
        let (first, count) = (place.queries.start, place.queries.len());
        let [_, factor] = factors::<E::Acc>(self.isa, shape);
        vectorized(
            #[inline(always)]
            || {
                for row in 0..rows {
                    let seen = shape.within(keys, first + row % count, place.sequence.len());
                    let weights = &mut block.weights[row * KEYS..(row + 1) * KEYS];
                    let dlogits = &mut block.dlogits[row * KEYS..(row + 1) * KEYS];
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
                            *weight = (*weight - lse).exp();
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

    /// Adds the block's share of the gradients of some keys and values.
    fn add_to_keys(
        &self,
        place: &Place,
        keys: &Range<usize>,
        block: &Queries<'_, E::Acc>,
        (dk, dv): (&mut [E::Acc], &mut [E::Acc]),
        memory: &mut [E::Acc],
    ) {
        let (width, rows) = (self.shape.head_dim, self.rows(place));
        let weights = Dense::strided(block.weights, rows, keys.len(), KEYS);
        let dlogits = Dense::strided(block.dlogits, rows, keys.len(), KEYS);
        let q = Dense::new(&block.q[..rows * width], rows, width);
        let dout = Dense::new(&block.dout[..rows * width], rows, width);
        let add = Update::Accumulate;
        let sides = (Operand::over_rows(&weights), Operand::over_rows(&dout));
        multiply_into(self.isa, sides, (dv, width), add, memory);
        let sides = (Operand::over_rows(&dlogits), Operand::over_rows(&q));
        multiply_into(self.isa, sides, (dk, width), add, memory);
    }

    /// Adds the share of some keys to the gradients of the block's queries.
    fn add_to_queries(
        &self,
        place: &Place,
        keys: &Range<usize>,
        block: &mut Queries<'_, E::Acc>,
        memory: &mut [E::Acc],
    ) {
        let (width, rows) = (self.shape.head_dim, self.rows(place));
        let dlogits = Dense::strided(block.dlogits, rows, keys.len(), KEYS);
        let k = self.keys(self.inputs.k, place, keys);
        let sides = (Operand::over_cols(&dlogits), Operand::over_rows(&k));
        let to = (&mut *block.dq, width);
        multiply_into(self.isa, sides, to, Update::Accumulate, memory);
    }

    /// Writes the gradients of a block of keys and values, whose sums are complete.
    fn store_keys(&self, place: &Place, keys: Range<usize>, (dk, dv): (&[E::Acc], &[E::Acc])) {
        let (width, stride) = (self.shape.head_dim, self.shape.kv_width());
        let [_, factor] = factors::<E::Acc>(self.isa, self.shape);
        for (idx, key) in keys.enumerate() {
            let at = (place.sequence.start + key) * stride + place.head * width;
            // SAFETY: only the last task of a sequence and head that sees the key writes here.
            let (to_k, to_v) = unsafe { (self.dk.part(at, width), self.dv.part(at, width)) };
            let range = idx * width..(idx + 1) * width;
            store(&dk[range.clone()], factor, to_k);
            store(&dv[range], E::Acc::ONE, to_v);
        }
    }

    /// Writes a block's gradient of the queries.
    fn store_queries(&self, place: &Place, block: &Queries<'_, E::Acc>) {
        let shape = self.shape;
        let (width, group, count) = (shape.head_dim, shape.group(), place.queries.len());
        let scale = E::Acc::from_f64(shape.scale);
        for (idx, query) in place.queries.clone().enumerate() {
            let at = (place.sequence.start + query) * shape.q_width() + place.head * group * width;
            // SAFETY: tasks have different queries or groups of heads, and each runs once.
            let out = unsafe { self.dq.part(at, group * width) };
            for (head, out) in out.chunks_exact_mut(width).enumerate() {
                let row = head * count + idx;
                store(&block.dq[row * width..(row + 1) * width], scale, out);
            }
        }
    }
}

/// `sums` times `factor`, rounded.
fn store<E: Element>(sums: &[E::Acc], factor: E::Acc, out: &mut [E]) {
    vectorized(
        #[inline(always)]
        move || {
            for (out, &sum) in out.iter_mut().zip(sums) {
                *out = E::store(sum * factor);
            }
        },
    );
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
