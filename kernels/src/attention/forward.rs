//! Queries, keys and values -> attention and the log-sum-exp of its logits.

mod block;
mod memory;

use std::ops::Range;

use espalier_interface::Services;

pub(super) use self::block::Block;
use self::memory::ForwardMemory;
use super::{AttentionShape, Inputs};
use crate::element::Element;
use crate::matmul::{Isa, Scalar, each_task, slot_bytes};
use crate::split::Parts;

/// Bytes of workspace that [`forward`] needs on `threads` threads, for any `T`.
pub fn forward_workspace_bytes<E: Element>(shape: &AttentionShape, threads: usize) -> usize
where
    E::Acc: Scalar,
{
    slot_bytes::<E::Acc>(0, share::<E::Acc>(shape), threads)
}

/// Elements that one task needs.
fn share<S: Scalar>(shape: &AttentionShape) -> usize {
    ForwardMemory::<S>::sizes(shape).iter().sum()
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
    let queries = shape.queries_forward();
    let count = tokens.div_ceil(queries);
    let isa = isa.checked().serving(E::DTYPE);
    let blocks = |task: usize| {
        // A task is a run of tokens and a key/value head. The last tokens, which have most keys,
        // are first.
        let (head, run) = (task % shape.kv_heads, count - 1 - task / shape.kv_heads);
        let run = run * queries..((run + 1) * queries).min(tokens);
        let width = shape.kv_width();
        pieces(inputs.cu_seqlens, run).map(move |(seq, tokens)| {
            let bounds = inputs.cu_seqlens[seq] as usize..inputs.cu_seqlens[seq + 1] as usize;
            Block {
                isa,
                shape,
                q: inputs.q,
                k: &inputs.k[bounds.start * width..bounds.end * width],
                v: &inputs.v[bounds.start * width..bounds.end * width],
                head,
                first: tokens.start - bounds.start,
                len: bounds.len(),
                tokens,
            }
        })
    };
    let tasks = count * shape.kv_heads;
    each_block(
        services,
        shape,
        (tasks, blocks),
        (&out, Some(&lse)),
        workspace,
    );
}

/// Computes the blocks of some tasks: `blocks` are those of one.
pub(super) fn each_block<'a, E: Element, B: Iterator<Item = Block<'a, E>>>(
    services: &dyn Services,
    shape: &AttentionShape,
    (tasks, blocks): (usize, impl Fn(usize) -> B + Sync),
    (out, lse): (&Parts<'_, E>, Option<&Parts<'_, E::Acc>>),
    workspace: &mut [u8],
) where
    E::Acc: Scalar,
{
    let run = |task: usize, memory: &mut [E::Acc]| {
        // What the thread takes next, if all are equally fast.
        let later = task + services.threads();
        let later = (later < tasks).then(|| blocks(later).next()).flatten();
        let mut own = blocks(task).peekable();
        while let Some(block) = own.next() {
            block.forward(memory, out, lse, own.peek().or(later.as_ref()));
        }
    };
    each_task(services, tasks, share::<E::Acc>(shape), workspace, run);
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
