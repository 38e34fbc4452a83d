//! Queries, keys and values -> attention and the log-sum-exp of its logits.
#![allow(unsafe_code)] // Disjoint parts of the outputs on several threads.

use std::ops::Range;

use espalier_interface::Services;

use super::softmax::{Running, cap, whole_lanes};
use super::{AttentionShape, Inputs, KEYS, factors, gather};
use crate::element::{Element, Real};
use crate::matmul::{
    Dense, Isa, Operand, Scalar, Update, each_task, multiply_into, slot_bytes, space,
};
use crate::simd::vectorized;
use crate::split::Parts;

/// Bytes of workspace that [`forward`] needs on `threads` threads, for any `T`.
pub fn forward_workspace_bytes<E: Element>(shape: &AttentionShape, threads: usize) -> usize
where
    E::Acc: Scalar,
{
    slot_bytes::<E::Acc>(0, share::<E::Acc>(shape), threads)
}

/// Elements that one task needs: queries and output of a block, logits, running sums, the
/// product's.
pub(super) fn share<S: Scalar>(shape: &AttentionShape) -> usize {
    let rows = shape.queries() * shape.group();
    rows * (2 * shape.head_dim + KEYS + 2) + space::<S>()
}

/// `out`, `[T, H K]`, and `lse`, `[T, H]`, of `inputs`.
///
/// # Panics
/// Where shapes disagree, or the workspace is under [`forward_workspace_bytes`] of one thread.
pub fn forward<E: Element>(
    isa: Isa,
    services: &dyn Services,
    shape: &AttentionShape,
    inputs: Inputs<'_, E>,
    (out, lse): (&mut [E], &mut [E::Acc]),
    workspace: &mut [u8],
) where
    E::Acc: Scalar,
{
    let tokens = shape.tokens(&inputs);
    assert_eq!(
        out.len(),
        inputs.q.len(),
        "the output has another shape than q"
    );
    assert_eq!(
        lse.len(),
        tokens * shape.heads,
        "lse is not [tokens, heads]"
    );
    let (out, lse) = (Parts::new(out), Parts::new(lse));
    let queries = shape.queries();
    let count = tokens.div_ceil(queries);
    let isa = isa.checked().without_tiles().serving(E::DTYPE);
    let run = |task: usize, memory: &mut [E::Acc]| {
        // A task is a run of tokens and a key/value head. The last tokens, which have most keys,
        // are first.
        let (head, run) = (task % shape.kv_heads, count - 1 - task / shape.kv_heads);
        let run = run * queries..((run + 1) * queries).min(tokens);
        let width = shape.kv_width();
        for (seq, tokens) in pieces(inputs.cu_seqlens, run) {
            let bounds = inputs.cu_seqlens[seq] as usize..inputs.cu_seqlens[seq + 1] as usize;
            let block = Block {
                isa,
                shape,
                q: inputs.q,
                k: &inputs.k[bounds.start * width..bounds.end * width],
                v: &inputs.v[bounds.start * width..bounds.end * width],
                head,
                first: tokens.start - bounds.start,
                tokens,
            };
            block.forward(memory, &out, Some(&lse));
        }
    };
    each_task(
        services,
        count * shape.kv_heads,
        share::<E::Acc>(shape),
        workspace,
        run,
    );
}

/// The tokens `run` cut where sequences start, each piece with the index of its sequence.
pub(super) fn pieces(
    cu_seqlens: &[i32],
    run: Range<usize>,
) -> impl Iterator<Item = (usize, Range<usize>)> {
    let first = cu_seqlens.partition_point(|&start| start as usize <= run.start) - 1;
    let bounds = cu_seqlens[first..].windows(2).enumerate();
    bounds
        .map(move |(at, ends)| {
            let piece = run.start.max(ends[0] as usize)..run.end.min(ends[1] as usize);
            (first + at, piece)
        })
        .take_while(|(_, piece)| piece.start <= piece.end)
        .filter(|(_, piece)| !piece.is_empty())
}

/// Some tokens of one sequence as queries of one group of heads.
pub(super) struct Block<'a, E> {
    pub(super) isa: Isa,
    pub(super) shape: &'a AttentionShape,
    /// `[T, H K]`.
    pub(super) q: &'a [E],
    /// The keys of the sequence from its start, `[.., J K]`.
    pub(super) k: &'a [E],
    /// Its values.
    pub(super) v: &'a [E],
    /// The key/value head.
    pub(super) head: usize,
    /// Which of the `T` tokens are the queries.
    pub(super) tokens: Range<usize>,
    /// Place of the first of them in its sequence.
    pub(super) first: usize,
}

impl<E: Element> Block<'_, E>
where
    E::Acc: Scalar,
{
    /// Writes `out` of its tokens and heads and, if given, their `lse`.
    pub(super) fn forward(
        &self,
        memory: &mut [E::Acc],
        out: &Parts<'_, E>,
        lse: Option<&Parts<'_, E::Acc>>,
    ) {
        let shape = self.shape;
        let (width, group, count) = (shape.head_dim, shape.group(), self.tokens.len());
        let (rows, len) = (group * count, self.k.len() / shape.kv_width());
        let (q, memory) = memory.split_at_mut(rows * width);
        let (sums, memory) = memory.split_at_mut(rows * width);
        let (logits, memory) = memory.split_at_mut(rows * KEYS);
        let (most, memory) = memory.split_at_mut(rows);
        let (total, memory) = memory.split_at_mut(rows);
        let from = (
            self.tokens.start * shape.q_width() + self.head * group * width,
            shape.q_width(),
        );
        let [of_queries, _] = factors(self.isa, shape);
        gather(self.q, from, [group, count, width], of_queries, q);
        sums.fill(E::Acc::ZERO);
        most.fill(E::Acc::NEG_INFINITY);
        total.fill(E::Acc::ZERO);
        let mut state = State { sums, most, total };
        for block in shape.blocks(self.first..self.first + count, len) {
            let keys = block.len();
            let at = block.start * shape.kv_width() + self.head * width;
            let k = Dense::strided(&self.k[at..], keys, width, shape.kv_width());
            let v = Dense::strided(&self.v[at..], keys, width, shape.kv_width());
            let queries = Dense::new(q, rows, width);
            let sides = (Operand::over_cols(&queries), Operand::over_cols(&k));
            multiply_into(self.isa, sides, (logits, KEYS), Update::Overwrite, memory);
            self.weigh(&block, logits, &mut state);
            let weights = Dense::strided(logits, rows, keys, KEYS);
            let sides = (Operand::over_cols(&weights), Operand::over_rows(&v));
            let to = (&mut *state.sums, width);
            multiply_into(self.isa, sides, to, Update::Accumulate, memory);
        }
        self.store(&state, out, lse);
    }

    /// Logits of a block of keys, `[rows, KEYS]`, -> their exponentials, with `state` made ready
    /// for the sums of them.
    fn weigh(
        &self,
        block: &Range<usize>,
        logits: &mut [E::Acc],
        State { sums, most, total }: &mut State<'_, E::Acc>,
    ) {
        let (shape, count) = (self.shape, self.tokens.len());
        let (width, len) = (shape.head_dim, self.k.len() / shape.kv_width());
        let [_, factor] = factors::<E::Acc>(self.isa, shape);
        vectorized(
            #[inline(always)]
            || {
                for row in 0..most.len() {
                    let seen = shape.within(block, self.first + row % count, len);
                    let logits = &mut logits[row * KEYS..(row + 1) * KEYS];
                    let lanes = whole_lanes(&seen, KEYS);
                    logits[..seen.start].fill(E::Acc::ZERO);
                    logits[lanes.end..].fill(E::Acc::ZERO);
                    if factor != E::Acc::ONE {
                        let logits = &mut logits[lanes.clone()];
                        logits.iter_mut().for_each(|x| *x *= factor);
                    }
                    if let Some(softcap) = shape.softcap {
                        cap(&mut logits[seen.clone()], E::Acc::from_f64(softcap));
                    }
                    logits[seen.end..lanes.end].fill(E::Acc::NEG_INFINITY);
                    let mut running = Running {
                        most: most[row],
                        sum: total[row],
                    };
                    let shrink = running.take(&mut logits[lanes]);
                    (most[row], total[row]) = (running.most, running.sum);
                    if shrink != E::Acc::ONE {
                        let sums = &mut sums[row * width..(row + 1) * width];
                        sums.iter_mut().for_each(|x| *x *= shrink);
                    }
                }
            },
        );
    }

    /// Writes the block's outputs and, if given, their `lse`.
    fn store(
        &self,
        State { sums, most, total }: &State<'_, E::Acc>,
        out: &Parts<'_, E>,
        lse: Option<&Parts<'_, E::Acc>>,
    ) {
        let shape = self.shape;
        let (width, group, count) = (shape.head_dim, shape.group(), self.tokens.len());
        let first_head = self.head * group;
        for (query, token) in self.tokens.clone().enumerate() {
            let at = token * shape.q_width() + first_head * width;
            // SAFETY: tasks have different tokens or groups of heads, and each runs once.
            let out = unsafe { out.part(at, group * width) };
            if let Some(lse) = lse {
                // SAFETY: as above.
                let lse = unsafe { lse.part(token * shape.heads + first_head, group) };
                for (head, lse) in lse.iter_mut().enumerate() {
                    let row = head * count + query;
                    let running = Running {
                        most: most[row],
                        sum: total[row],
                    };
                    *lse = running.log_sum_exp();
                }
            }
            vectorized(
                #[inline(always)]
                || {
                    for (head, out) in out.chunks_exact_mut(width).enumerate() {
                        let (row, all) = (head * count + query, total[head * count + query]);
                        let sums = &sums[row * width..(row + 1) * width];
                        for (out, &sum) in out.iter_mut().zip(sums) {
                            *out = E::store(sum / all);
                        }
                    }
                },
            );
        }
    }
}

/// The sums of a block's rows so far.
struct State<'a, S> {
    /// Of values times weights, `[rows, K]`.
    sums: &'a mut [S],
    /// The largest logit, `[rows]`.
    most: &'a mut [S],
    /// Of weights, `[rows]`.
    total: &'a mut [S],
}
