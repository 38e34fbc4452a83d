//! The gradient of attention's output -> those of its queries, keys and values.
//!
//! One task is a sequence and a key/value head. It alone adds to its keys' gradients, query block
//! after query block, so that the bits do not depend on the order of threads.
#![allow(unsafe_code)] // Disjoint parts of the outputs on several threads.

mod order;

use std::ops::Range;

use espalier_interface::Services;

use self::order::{length, longest_first};
use super::softmax::dot_by;
use super::{AttentionShape, Inputs, KEYS, gather};
use crate::element::{Element, Real};
use crate::matmul::{
    Dense, Isa, Operand, Scalar, Update, each_task, multiply_into, slot_bytes, space,
};
use crate::simd::vectorized;
use crate::split::Parts;

/// The operands that only the backward pass reads, and its outputs.
#[derive(Debug)]
pub struct Gradients<'a, E: Element> {
    /// Gradient of the output, `[T, H K]`.
    pub dout: &'a [E],
    /// The output, `[T, H K]`.
    pub out: &'a [E],
    /// The log-sum-exp of the forward pass, `[T, H]`.
    pub lse: &'a [E::Acc],
    /// Gradient of q, `[T, H K]`, overwritten.
    pub dq: &'a mut [E],
    /// Gradient of k, `[T, J K]`, overwritten.
    pub dk: &'a mut [E],
    /// Gradient of v, `[T, J K]`, overwritten.
    pub dv: &'a mut [E],
}

/// Bytes of workspace that [`backward`] needs on `threads` threads for up to `max_tokens` tokens in
/// sequences of any length.
pub fn backward_workspace_bytes<E: Element>(
    shape: &AttentionShape,
    max_tokens: usize,
    threads: usize,
) -> usize
where
    E::Acc: Scalar,
{
    // At most one sequence per head can be as long as all tokens together.
    let long = threads.min(shape.kv_heads);
    slot_bytes::<E::Acc>(0, share::<E::Acc>(shape, 0), threads)
        + slot_bytes::<E::Acc>(0, 2 * max_tokens * shape.head_dim, long)
        + max_tokens * size_of::<u32>()
        + align_of::<u32>()
}

/// Elements that a task for a sequence of `len` tokens needs. They are its keys' and values'
/// gradients; queries, their gradients and the output's; weights and their gradients; two numbers
/// per row; the product's.
fn share<S: Scalar>(shape: &AttentionShape, len: usize) -> usize {
    let rows = shape.queries() * shape.group();
    2 * len * shape.head_dim + rows * (3 * shape.head_dim + 2 * KEYS + 2) + space::<S>()
}

/// `dq`, `dk` and `dv` of [`super::forward`] where the gradient of its output is `dout`.
///
/// # Panics
/// Where shapes disagree, or the workspace is under [`backward_workspace_bytes`] of one thread.
pub fn backward<E: Element>(
    isa: Isa,
    services: &dyn Services,
    shape: &AttentionShape,
    inputs: Inputs<'_, E>,
    gradients: Gradients<'_, E>,
    workspace: &mut [u8],
) where
    E::Acc: Scalar,
{
    let tokens = shape.tokens(&inputs);
    let Gradients {
        dout,
        out,
        lse,
        dq,
        dk,
        dv,
    } = gradients;
    let (q_len, kv_len) = (inputs.q.len(), inputs.k.len());
    assert_eq!(
        [dout.len(), out.len(), dq.len()],
        [q_len; 3],
        "a gradient has another shape than q"
    );
    assert_eq!(
        [dk.len(), dv.len()],
        [kv_len; 2],
        "a gradient has another shape than k"
    );
    assert_eq!(
        lse.len(),
        tokens * shape.heads,
        "lse is not [tokens, heads]"
    );
    let (order, workspace) = longest_first(inputs.cu_seqlens, workspace);
    let Some(&longest) = order.first() else {
        return;
    };
    let longest = length(inputs.cu_seqlens, longest);
    let task = Task {
        isa: isa.checked().vectors(),
        shape,
        inputs,
        dout,
        out,
        lse,
        dq: Parts::new(dq),
        dk: Parts::new(dk),
        dv: Parts::new(dv),
    };
    let run = |idx: usize, memory: &mut [E::Acc]| {
        let seq = order[idx / shape.kv_heads] as usize;
        let bounds = inputs.cu_seqlens[seq] as usize..inputs.cu_seqlens[seq + 1] as usize;
        task.backward(bounds, idx % shape.kv_heads, memory);
    };
    let share = share::<E::Acc>(shape, longest);
    each_task(
        services,
        order.len() * shape.kv_heads,
        share,
        workspace,
        run,
    );
}

/// The state that all tasks share.
struct Task<'a, E: Element> {
    isa: Isa,
    shape: &'a AttentionShape,
    inputs: Inputs<'a, E>,
    dout: &'a [E],
    out: &'a [E],
    lse: &'a [E::Acc],
    dq: Parts<'a, E>,
    dk: Parts<'a, E>,
    dv: Parts<'a, E>,
}

/// A block of queries of one group of heads, `[group, count]` rows, with its intermediate results.
struct Queries<'a, S> {
    /// Times the scale, `[rows, K]`.
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

impl<E: Element> Task<'_, E>
where
    E::Acc: Scalar,
{
    /// The gradients of one sequence's queries, keys and values, in one group of heads.
    fn backward(&self, sequence: Range<usize>, head: usize, memory: &mut [E::Acc]) {
        let shape = self.shape;
        let (width, group, len) = (shape.head_dim, shape.group(), sequence.len());
        let (dk, memory) = memory.split_at_mut(len * width);
        let (dv, mut memory) = memory.split_at_mut(len * width);
        dk.fill(E::Acc::ZERO);
        dv.fill(E::Acc::ZERO);
        let most = shape.queries() * group;
        let mut take = |count: usize| {
            let (taken, rest) = std::mem::take(&mut memory).split_at_mut(count);
            memory = rest;
            taken
        };
        let mut block = Queries {
            q: take(most * width),
            dout: take(most * width),
            dq: take(most * width),
            lse: take(most),
            delta: take(most),
            weights: take(most * KEYS),
            dlogits: take(most * KEYS),
        };
        for first in (0..len).step_by(shape.queries()) {
            let queries = first..(first + shape.queries()).min(len);
            self.load(&sequence, head, queries.clone(), &mut block);
            let rows = group * queries.len();
            for keys in shape.blocks(queries.clone(), len) {
                self.key_block(
                    &sequence,
                    head,
                    (queries.clone(), &keys),
                    &mut block,
                    memory,
                );
                let count = keys.len();
                let weights = Dense::strided(block.weights, rows, count, KEYS);
                let dlogits = Dense::strided(block.dlogits, rows, count, KEYS);
                let q = Dense::new(&block.q[..rows * width], rows, width);
                let dout = Dense::new(&block.dout[..rows * width], rows, width);
                let range = keys.start * width..keys.end * width;
                let sides = (Operand::over_rows(&weights), Operand::over_rows(&dout));
                let to = (&mut dv[range.clone()], width);
                multiply_into(self.isa, sides, to, Update::Accumulate, memory);
                let sides = (Operand::over_rows(&dlogits), Operand::over_rows(&q));
                multiply_into(
                    self.isa,
                    sides,
                    (&mut dk[range], width),
                    Update::Accumulate,
                    memory,
                );
                let k = self.keys(self.inputs.k, &sequence, head, &keys);
                let sides = (Operand::over_cols(&dlogits), Operand::over_rows(&k));
                multiply_into(
                    self.isa,
                    sides,
                    (block.dq, width),
                    Update::Accumulate,
                    memory,
                );
            }
            self.store_queries(&sequence, head, queries, &block);
        }
        for token in 0..len {
            let at = (sequence.start + token) * shape.kv_width() + head * width;
            // SAFETY: tasks have different sequences or key/value heads, and each runs once.
            let (to_k, to_v) = unsafe { (self.dk.part(at, width), self.dv.part(at, width)) };
            for i in 0..width {
                to_k[i] = E::store(dk[token * width + i]);
                to_v[i] = E::store(dv[token * width + i]);
            }
        }
    }

    /// Keys or values of a block, `[keys, K]`.
    fn keys<'b>(
        &self,
        of: &'b [E],
        sequence: &Range<usize>,
        head: usize,
        keys: &Range<usize>,
    ) -> Dense<'b, E> {
        let (width, stride) = (self.shape.head_dim, self.shape.kv_width());
        let at = (sequence.start + keys.start) * stride + head * width;
        Dense::strided(&of[at..], keys.len(), width, stride)
    }

    /// Reads a block of queries.
    fn load(
        &self,
        sequence: &Range<usize>,
        head: usize,
        queries: Range<usize>,
        block: &mut Queries<'_, E::Acc>,
    ) {
        let shape = self.shape;
        let (width, group, count) = (shape.head_dim, shape.group(), queries.len());
        let start = sequence.start + queries.start;
        let from = (
            start * shape.q_width() + head * group * width,
            shape.q_width(),
        );
        let sizes = [group, count, width];
        gather(
            self.inputs.q,
            from,
            sizes,
            E::Acc::from_f64(shape.scale),
            block.q,
        );
        gather(self.dout, from, sizes, E::Acc::ONE, block.dout);
        block.dq.fill(E::Acc::ZERO);
        vectorized(
            #[inline(always)]
            || {
                for row in 0..group * count {
                    let (token, head) = (start + row % count, head * group + row / count);
                    block.lse[row] = self.lse[token * shape.heads + head];
                    let at = token * shape.q_width() + head * width;
                    let out = &self.out[at..at + width];
                    let dout = &block.dout[row * width..(row + 1) * width];
                    block.delta[row] = dot_by(width, |i| dout[i] * out[i].load());
                }
            },
        );
    }

    /// Fills the block's weights and gradients of logits for some keys.
    fn key_block(
        &self,
        sequence: &Range<usize>,
        head: usize,
        (queries, keys): (Range<usize>, &Range<usize>),
        block: &mut Queries<'_, E::Acc>,
        memory: &mut [E::Acc],
    ) {
        let shape = self.shape;
        let (width, count) = (shape.head_dim, queries.len());
        let rows = shape.group() * count;
        let k = self.keys(self.inputs.k, sequence, head, keys);
        let v = self.keys(self.inputs.v, sequence, head, keys);
        let q = Dense::new(&block.q[..rows * width], rows, width);
        let dout = Dense::new(&block.dout[..rows * width], rows, width);
        let sides = (Operand::over_cols(&q), Operand::over_cols(&k));
        multiply_into(
            self.isa,
            sides,
            (block.weights, KEYS),
            Update::Overwrite,
            memory,
        );
        let sides = (Operand::over_cols(&dout), Operand::over_cols(&v));
        multiply_into(
            self.isa,
            sides,
            (block.dlogits, KEYS),
            Update::Overwrite,
            memory,
        );
        vectorized(
            #[inline(always)]
            || {
                for row in 0..rows {
                    let seen = shape.within(keys, queries.start + row % count, sequence.len());
                    let weights = &mut block.weights[row * KEYS..row * KEYS + keys.len()];
                    let dlogits = &mut block.dlogits[row * KEYS..row * KEYS + keys.len()];
                    for side in [&mut *weights, &mut *dlogits] {
                        side[..seen.start].fill(E::Acc::ZERO);
                        side[seen.end..].fill(E::Acc::ZERO);
                    }
                    let (weights, dlogits) = (&mut weights[seen.clone()], &mut dlogits[seen]);
                    let (lse, delta) = (block.lse[row], block.delta[row]);
                    if let Some(softcap) = shape.softcap {
                        capped(weights, dlogits, E::Acc::from_f64(softcap), lse, delta);
                        continue;
                    }
                    for (weight, dlogit) in weights.iter_mut().zip(dlogits) {
                        *weight = (*weight - lse).exp();
                        *dlogit = *weight * (*dlogit - delta);
                    }
                }
            },
        );
    }

    /// Writes a block's gradient of the queries.
    fn store_queries(
        &self,
        sequence: &Range<usize>,
        head: usize,
        queries: Range<usize>,
        block: &Queries<'_, E::Acc>,
    ) {
        let shape = self.shape;
        let (width, group, count) = (shape.head_dim, shape.group(), queries.len());
        let scale = E::Acc::from_f64(shape.scale);
        for (idx, query) in queries.enumerate() {
            let at = (sequence.start + query) * shape.q_width() + head * group * width;
            // SAFETY: tasks have different sequences or groups of heads, and each runs once.
            let out = unsafe { self.dq.part(at, group * width) };
            for (head, out) in out.chunks_exact_mut(width).enumerate() {
                let row = head * count + idx;
                for (out, &x) in out.iter_mut().zip(&block.dq[row * width..]) {
                    *out = E::store(x * scale);
                }
            }
        }
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
