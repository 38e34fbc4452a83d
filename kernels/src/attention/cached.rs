//! Queries and a cache of the keys and values before them -> attention over both.
//!
//! Legend: `N` slots of a cache, `L` tokens of a slot; the others as in [`super`].

use espalier_interface::Services;

use super::forward::{Block, pieces, share};
use super::{AttentionShape, Inputs};
use crate::element::Element;
use crate::matmul::{Isa, Scalar, each_task};
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

/// Where a sequence of the launch goes on in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Its slot, below `N`.
    pub slot: usize,
    /// Tokens that the slot holds of it: the place of its first token of the launch.
    pub held: usize,
}

/// Puts the keys and values of `inputs` into the cache and attends over all that it then holds.
///
/// `start(s)` tells where sequence `s` of the launch goes on; their slots differ. `out` is `[T, H
/// K]`. A token's bits are those that [`super::forward`] gives it in its whole sequence: keys are
/// taken in the same blocks.
///
/// # Panics
/// Where shapes disagree, a sequence leaves its slot, or the workspace is under
/// [`super::forward_workspace_bytes`] of one thread.
pub fn forward_cached<E: Element>(
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
    let queries = shape.queries();
    let count = tokens.div_ceil(queries);
    let isa = Isa::detect();
    let run = |task: usize, memory: &mut [E::Acc]| {
        let (head, run) = (task % shape.kv_heads, task / shape.kv_heads);
        let run = run * queries..((run + 1) * queries).min(tokens);
        for (seq, tokens) in pieces(inputs.cu_seqlens, run) {
            let Start { slot, held } = start(seq);
            let [begin, end] = [0, 1].map(|side| inputs.cu_seqlens[seq + side] as usize);
            let all = slot * capacity * width..(slot * capacity + held + end - begin) * width;
            let block = Block {
                isa,
                shape,
                q: inputs.q,
                k: &keys[all.clone()],
                v: &values[all],
                head,
                first: held + tokens.start - begin,
                tokens,
            };
            block.forward(memory, &out, None);
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

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::super::Future;
    use super::super::tests::{Case, shapes};
    use super::*;
    use crate::attention::forward_workspace_bytes;
    use crate::element::Real;
    use crate::matmul::threads::Threads;

    const CAPACITY: usize = 300;
    const SLOTS: [usize; 3] = [2, 0, 1];
    /// New tokens of each of the three sequences in one launch after the other.
    const LAUNCHES: [[usize; 3]; 6] = [
        [5, 0, 127],
        [1, 128, 1],
        [1, 1, 1],
        [0, 1, 130],
        [3, 20, 1],
        [1, 150, 0],
    ];

    /// The outputs of three sequences, taken in piece by piece.
    fn in_pieces<E: Element>(case: &Case<E>, threads: usize) -> Vec<E>
    where
        E::Acc: Scalar,
    {
        let shape = case.shape;
        let (wide, narrow) = (shape.q_width(), shape.kv_width());
        // What nothing has written must not be read.
        let nothing = E::store(E::Acc::from_f64(f64::NAN));
        let mut keys = vec![nothing; 3 * CAPACITY * narrow];
        let mut values = keys.clone();
        let mut out = vec![nothing; case.q.len()];
        let mut held = [0; 3];
        for launch in LAUNCHES {
            let from = |seq: usize| case.cu_seqlens[seq] as usize + held[seq];
            let take = |x: &[E], width: usize| -> Vec<E> {
                let part = |seq| &x[from(seq) * width..(from(seq) + launch[seq]) * width];
                (0..3).flat_map(part).copied().collect()
            };
            let (q, k, v) = (
                take(&case.q, wide),
                take(&case.k, narrow),
                take(&case.v, narrow),
            );
            let ends = [0, launch[0], launch[0] + launch[1], launch.iter().sum()];
            let inputs = Inputs {
                q: &q,
                k: &k,
                v: &v,
                cu_seqlens: &ends.map(|end| end as i32),
            };
            let cache = Cache {
                keys: &mut keys,
                values: &mut values,
                capacity: CAPACITY,
            };
            let start = |seq: usize| Start {
                slot: SLOTS[seq],
                held: held[seq],
            };
            let mut made = vec![nothing; q.len()];
            let bytes = forward_workspace_bytes::<E>(&shape, threads);
            forward_cached(
                &Threads(threads),
                &shape,
                inputs,
                (cache, &start),
                &mut made,
                &mut vec![0xFF; bytes],
            );
            for seq in 0..3 {
                let part = &made[ends[seq] * wide..ends[seq + 1] * wide];
                out[from(seq) * wide..][..part.len()].copy_from_slice(part);
            }
            (0..3).for_each(|seq| held[seq] += launch[seq]);
        }
        out
    }

    #[test]
    fn pieces_give_the_bits_of_the_whole() {
        fn check<E: Element>(shape: AttentionShape)
        where
            E::Acc: Scalar,
        {
            let case = Case::<E>::new(shape, &[11, 300, 260]);
            let (whole, _) = case.forward(&Threads(1));
            for threads in [1, 3] {
                assert!(in_pieces(&case, threads) == whole, "{shape:?}");
            }
        }
        let causal = |shape: &AttentionShape| shape.future == Future::Hidden;
        for shape in shapes().into_iter().filter(causal) {
            check::<f32>(shape);
            check::<bf16>(shape);
            check::<f64>(shape);
        }
    }
}
