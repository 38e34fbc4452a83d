//! Queries and a cache of the keys and values before them -> attention over both.
//!
//! Legend: `N` slots of a cache, `L` tokens of a slot; the others as in [`super`].

use espalier_interface::Services;

use super::forward::{Block, each_block, pieces};
use super::{AttentionShape, Inputs};
use crate::element::Element;
use crate::matmul::{Isa, Scalar};
use crate::split::Parts;

/// Keys and values of all tokens so far.
#[derive(Debug)]
pub struct Cache<'a, E> {
    /// `[N, L, J K]`.
    pub keys: &'a mut [E],
    /// `[N, L, J K]`.
    pub values: &'a mut [E],
    /// `L`.
    pub capacity: usize,
}

/// Where a sequence of the launch continues in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Its slot, below `N`.
    pub slot: usize,
    /// Tokens of it in the slot: the place of its first token of the launch.
    pub held: usize,
}

/// Appends the keys and values of `inputs` to the cache and attends over all keys in it.
///
/// `start(s)` is where sequence `s` of the launch continues; their slots differ. `out` is `[T, H
/// K]`. A token's bits equal those of [`super::forward`] on its whole sequence: keys are read in
/// the same blocks.
///
/// # Panics
/// Where shapes disagree, a sequence exceeds its slot, or the workspace is under
/// [`super::forward_workspace_bytes`] of one thread.
pub fn forward_cached<E: Element>(
    isa: Isa,
    services: &dyn Services,
    shape: &AttentionShape,
    inputs: Inputs<'_, E>,
    (cache, start): (Cache<'_, E>, &(dyn Fn(usize) -> Start + Sync)),
    out: &mut [E],
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
    let (width, capacity) = (shape.kv_width(), cache.capacity);
    for (seq, bounds) in inputs.cu_seqlens.windows(2).enumerate() {
        let Start { slot, held } = start(seq);
        let new = bounds[0] as usize * width..bounds[1] as usize * width;
        assert!(
            held * width + new.len() <= capacity * width,
            "a sequence leaves its slot"
        );
        let at = (slot * capacity + held) * width;
        cache.keys[at..at + new.len()].copy_from_slice(&inputs.k[new.clone()]);
        cache.values[at..at + new.len()].copy_from_slice(&inputs.v[new]);
    }
    let (keys, values) = (&*cache.keys, &*cache.values);
    let out = Parts::new(out);
    let queries = shape.queries_forward();
    let count = tokens.div_ceil(queries);
    let isa = isa.checked().serving(E::DTYPE);
    let blocks = |task: usize| {
        let (head, run) = (task % shape.kv_heads, task / shape.kv_heads);
        let run = run * queries..((run + 1) * queries).min(tokens);
        pieces(inputs.cu_seqlens, run).map(move |(seq, tokens)| {
            let Start { slot, held } = start(seq);
            let [begin, end] = [0, 1].map(|side| inputs.cu_seqlens[seq + side] as usize);
            let all = slot * capacity * width..(slot * capacity + held + end - begin) * width;
            Block {
                isa,
                shape,
                q: inputs.q,
                k: &keys[all.clone()],
                v: &values[all],
                head,
                first: held + tokens.start - begin,
                len: held + end - begin,
                tokens,
            }
        })
    };
    let tasks = count * shape.kv_heads;
    each_block(services, shape, (tasks, blocks), (&out, None), workspace);
}

#[cfg(test)]
mod tests;
