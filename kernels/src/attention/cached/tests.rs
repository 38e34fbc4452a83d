//! Attention over a cache in pieces has the bits of the whole sequence.

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

/// The outputs of three sequences, computed piece by piece.
fn in_pieces<E: Element>(case: &Case<E>, threads: usize) -> Vec<E>
where
    E::Acc: Scalar,
{
    let shape = case.shape;
    let (wide, narrow) = (shape.q_width(), shape.kv_width());
    // Elements that were not written must not be read.
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
            Isa::detect(),
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
