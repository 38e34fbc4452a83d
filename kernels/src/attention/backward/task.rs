//! A block of queries and a key/value head -> its queries' gradients, and its share of those of
//! the keys and values that it sees.
#![allow(unsafe_code)] // Disjoint parts of the outputs and of the sums on several threads.

use std::ops::Range;

use super::memory::{BackwardMemory, Queries};
use super::order::{Place, Turn};
use crate::attention::softmax::dot;
use crate::attention::{
    AttentionShape, Inputs, KEYS, factors, gather, gather_stored, padded, prefetch_rows,
};
use crate::element::{Element, Real};
use crate::matmul::{Dense, Isa, Operand, Panel, Rows, Scalar, Side, Update, rows_of_steps};
use crate::simd::{prefetch, vectorized};
use crate::split::Parts;

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

impl<E: Element> Backward<'_, E>
where
    E::Acc: Scalar,
{
    /// The gradients of the queries at `place`, and their share of those of keys and values.
    /// `later` is probably the thread's next place.
    ///
    /// `sums` are `[2, J, T, K]`, each row padded: the gradients of all keys and values so far.
    pub fn backward(
        &self,
        (place, later): (Place, Option<Place>),
        turn: Turn<'_>,
        sums: &Parts<'_, E::Acc>,
        memory: &mut [E::Acc],
    ) {
        let shape = self.shape;
        let (queries, len) = (place.queries.clone(), place.sequence.len());
        let BackwardMemory {
            q,
            dout,
            q_rows,
            dout_rows,
            keys: [k, v, k_rows],
            mut by_key,
            strip,
            mut results,
            lse,
            delta,
        } = BackwardMemory::new(shape, memory);
        let [of_queries, _] = factors(self.isa, shape);
        let from = (self.inputs.q, of_queries);
        let [q, q_rows] = self.pack(&place, from, [q, q_rows], (results.dq, strip));
        let from = (self.dout, E::Acc::ONE);
        let [dout, dout_rows] = self.pack(&place, from, [dout, dout_rows], (results.dq, strip));
        self.load(&place, lse, delta);
        let block = Queries {
            q,
            dout,
            q_rows,
            dout_rows,
            lse,
            delta,
        };
        clear(results.dq);
        let mut blocks = shape.blocks(queries, len).peekable();
        while let Some(keys) = blocks.next() {
            match blocks.peek() {
                Some(next) => self.prefetch_keys(&place, next),
                None => {
                    later.iter().for_each(|later| self.prefetch_queries(later));
                    self.outputs(&place).for_each(|dq| prefetch(dq));
                }
            }
            let [of_keys, of_values] =
                [self.inputs.k, self.inputs.v].map(|of| self.keys(of, &place, &keys));
            let sides = [
                Side::right(self.isa, Operand::over_cols(&of_keys), k, strip),
                Side::right(self.isa, Operand::over_cols(&of_values), v, strip),
                Side::right(self.isa, Operand::over_rows(&of_keys), k_rows, strip),
            ];
            self.weigh(&place, &keys, &block, &sides, &mut results);
            let rows = self.rows(&place);
            let size = [rows, keys.len()];
            let [by_weights, by_dlogits] = &mut by_key;
            let lefts = [
                self.by_key(results.weights, size, by_weights, strip),
                self.by_key(results.dlogits, size, by_dlogits, strip),
            ];
            self.add_to_keys(&place, &keys, &lefts, &block, (&turn, sums));
        }
        self.store_queries(&place, results.dq);
    }

    /// Asks for the keys and values of a block, which are packed next.
    fn prefetch_keys(&self, place: &Place, keys: &Range<usize>) {
        let (start, width) = (place.sequence.start, self.shape.head_dim);
        let keys = start + keys.start..start + keys.end;
        let columns = [self.shape.kv_width(), place.head * width, width];
        prefetch_rows(&[self.inputs.k, self.inputs.v], keys, columns);
    }

    /// Asks for what is read of a block's queries.
    fn prefetch_queries(&self, place: &Place) {
        let width = self.shape.group() * self.shape.head_dim;
        let columns = [self.shape.q_width(), place.head * width, width];
        let read = [self.inputs.q, self.dout, self.out];
        prefetch_rows(&read, self.tokens(place), columns);
    }

    /// Keys or values of a block, `[keys, K]`.
    fn keys<'b>(&self, of: &'b [E], place: &Place, keys: &Range<usize>) -> Dense<'b, E> {
        let (width, stride) = (self.shape.head_dim, self.shape.kv_width());
        let at = (place.sequence.start + keys.start) * stride + place.head * width;
        Dense::strided(&of[at..], keys.len(), width, stride)
    }

    /// The tokens of a block, of all `T`.
    fn tokens(&self, place: &Place) -> Range<usize> {
        let start = place.sequence.start;
        start + place.queries.start..start + place.queries.end
    }

    /// Rows of a block: its heads times its queries.
    fn rows(&self, place: &Place) -> usize {
        self.shape.group() * place.queries.len()
    }

    /// The rows of a block times `factor`, packed as the left side of products over `K` and as the
    /// right side of products over rows.
    fn pack<'m>(
        &self,
        place: &Place,
        (from, factor): (&[E], E::Acc),
        [left, right]: [&'m mut [E::Acc]; 2],
        (memory, strip): (&mut [E::Acc], &mut [E::Acc]),
    ) -> [Side<'m, E::Acc>; 2] {
        let shape = self.shape;
        let (width, rows) = (shape.head_dim, self.rows(place));
        let start = self.tokens(place).start * shape.q_width();
        let from_at = (start + place.head * shape.group() * width, shape.q_width());
        let sizes = [shape.group(), place.queries.len(), width];
        let memory = &mut memory[..rows * width];
        let (as_stored, in_sums);
        let rows: &dyn Rows<E::Acc> = if self.isa == self.isa.vectors() {
            gather(from, from_at, sizes, factor, memory);
            in_sums = Dense::new(memory, rows, width);
            &in_sums
        } else {
            as_stored = Dense::new(gather_stored(from, from_at, sizes, memory), rows, width);
            &as_stored
        };
        [
            Side::left(self.isa, Operand::over_cols(rows), left, strip),
            Side::right(self.isa, Operand::over_rows(rows), right, strip),
        ]
    }

    /// Rows of [`KEYS`] weights or gradients of logits of some keys -> the left operand, of which
    /// these keys are the lanes; packed, with instructions for bf16.
    fn by_key<'m>(
        &self,
        of: &'m [E::Acc],
        [rows, keys]: [usize; 2],
        memory: &'m mut [E::Acc],
        strip: &mut [E::Acc],
    ) -> ByKey<'m, E::Acc> {
        if self.isa == self.isa.vectors() {
            return ByKey::Lying(of);
        }
        let (of, stride) = rows_of_steps(of, KEYS);
        let of = Dense::strided(of, rows, keys, stride);
        ByKey::Packed(Side::left(self.isa, Operand::over_rows(&of), memory, strip))
    }

    /// Reads the rows' `lse`, and computes their `delta`.
    fn load(&self, place: &Place, lse: &mut [E::Acc], delta: &mut [E::Acc]) {
        let shape = self.shape;
        let (width, group, count) = (shape.head_dim, shape.group(), place.queries.len());
        let start = self.tokens(place).start;
        let first_head = place.head * group;
        vectorized(
            #[inline(always)]
            || {
                for row in 0..group * count {
                    let (token, head) = (start + row % count, first_head + row / count);
                    lse[row] = self.lse[token * shape.heads + head];
                    let at = token * shape.q_width() + head * width;
                    delta[row] = dot(&self.dout[at..at + width], &self.out[at..at + width]);
                }
            },
        );
    }

    /// Adds the block's share to the gradients of some keys and values, from its weights and
    /// gradients of logits, when it is the task's turn. The first task that sees a block of keys
    /// clears its sums, the last one writes them to the outputs.
    fn add_to_keys(
        &self,
        place: &Place,
        keys: &Range<usize>,
        [weights, dlogits]: &[ByKey<'_, E::Acc>; 2],
        block: &Queries<'_, E::Acc>,
        (turn, sums): (&Turn<'_>, &Parts<'_, E::Acc>),
    ) {
        let shape = self.shape;
        let (queries, len) = (place.queries.clone(), place.sequence.len());
        let seen_before = match queries.start.checked_sub(shape.queries_backward()) {
            Some(start) => shape.block_range(start..queries.start, len).end,
            None => 0,
        };
        let seen_later = if queries.end < len {
            let later = queries.end..(queries.end + shape.queries_backward()).min(len);
            shape.block_range(later, len).start
        } else {
            usize::MAX
        };
        let idx = keys.start / KEYS;
        let all = keys.start..(keys.start + KEYS).min(len);
        let range = |side: usize| {
            let tokens = self.inputs.k.len() / shape.kv_width();
            let row = (side * shape.kv_heads + place.head) * tokens + place.sequence.start;
            (row + all.start) * padded(shape.head_dim)
        };
        turn.wait_for(idx);
        let size = all.len() * padded(shape.head_dim);
        // SAFETY: tasks of other sequences or heads have other sums. Of those of the same one,
        // each had this block of keys until `finish`, one after the other.
        let (dk, dv) = unsafe { (sums.part(range(0), size), sums.part(range(1), size)) };
        if idx >= seen_before {
            clear(dk);
            clear(dv);
        }
        self.multiply_onto((weights, place, keys), &block.dout_rows, dv);
        self.multiply_onto((dlogits, place, keys), &block.q_rows, dk);
        if idx < seen_later {
            self.store_keys(place, all, (dk, dv));
        }
        turn.finish(idx);
    }

    /// Adds a product to the gradients of some keys or values, `[keys, K]`, each row padded.
    fn multiply_onto(
        &self,
        (left, place, keys): (&ByKey<'_, E::Acc>, &Place, &Range<usize>),
        right: &Side<'_, E::Acc>,
        sums: &mut [E::Acc],
    ) {
        let (width, stride) = (self.shape.head_dim, padded(self.shape.head_dim));
        match left {
            ByKey::Packed(left) => {
                for panel in left.panels() {
                    let to = (&mut sums[panel.start * stride..], stride);
                    left.multiply(panel, right, 0..width, to, Update::Accumulate);
                }
            }
            ByKey::Lying(rows) => {
                // Queries of the first head that see none of a panel's keys.
                let blind = |panel: Panel| {
                    let first = self.shape.first_query(keys.start + panel.start);
                    let before = first.saturating_sub(place.queries.start);
                    before.min(place.queries.len())
                };
                let to = (sums, stride);
                right.add_columns((rows, KEYS), (keys.len(), blind), to);
            }
        }
    }

    /// Writes the gradients of a block of keys and values, whose sums are complete.
    fn store_keys(&self, place: &Place, keys: Range<usize>, (dk, dv): (&[E::Acc], &[E::Acc])) {
        let (width, stride) = (self.shape.head_dim, self.shape.kv_width());
        let [_, factor] = factors::<E::Acc>(self.isa, self.shape);
        for (idx, key) in keys.enumerate() {
            let at = (place.sequence.start + key) * stride + place.head * width;
            // SAFETY: only the last task of a sequence and head that sees the key writes here.
            let (to_k, to_v) = unsafe { (self.dk.part(at, width), self.dv.part(at, width)) };
            let range = idx * padded(width)..idx * padded(width) + width;
            store(&dk[range.clone()], factor, to_k);
            store(&dv[range], E::Acc::ONE, to_v);
        }
    }

    /// Writes a block's gradient of the queries.
    fn store_queries(&self, place: &Place, dq: &[E::Acc]) {
        let (width, count) = (self.shape.head_dim, place.queries.len());
        let scale = E::Acc::from_f64(self.shape.scale);
        for (idx, out) in self.outputs(place).enumerate() {
            for (head, out) in out.chunks_exact_mut(width).enumerate() {
                let row = head * count + idx;
                store(&dq[row * padded(width)..][..width], scale, out);
            }
        }
    }

    /// A block's gradients of queries, token by token.
    fn outputs(&self, place: &Place) -> impl Iterator<Item = &mut [E]> {
        let width = self.shape.group() * self.shape.head_dim;
        let (stride, first) = (self.shape.q_width(), place.head * width);
        // SAFETY: tasks have different queries or groups of heads, and each runs once.
        self.tokens(place)
            .map(move |token| unsafe { self.dq.part(token * stride + first, width) })
    }
}

/// Weights or gradients of logits as the left operand of products, of which keys are the lanes.
enum ByKey<'a, S> {
    /// Packed.
    Packed(Side<'a, S>),
    /// Rows of [`KEYS`], which are read as they lie.
    Lying(&'a [S]),
}

/// Clears sums.
fn clear<S: Real>(sums: &mut [S]) {
    vectorized(
        #[inline(always)]
        move || sums.fill(S::ZERO),
    );
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
