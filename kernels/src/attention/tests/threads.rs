//! The bits of attention and its gradients on several numbers of threads.

use super::*;
use crate::matmul::threads::Threads;

/// Fails where any number of threads changes a bit.
fn check<E: Element>(shape: AttentionShape, lens: &[usize], threads: &[usize])
where
    E::Acc: Scalar,
{
    let case = Case::<E>::new(shape, lens);
    let expected = case.run(&Serial);
    for &threads in threads {
        assert!(
            case.run(&Threads(threads)) == expected,
            "{shape:?}, {lens:?} on {threads} threads"
        );
    }
}

#[test]
fn bits_do_not_depend_on_threads() {
    for shape in shapes() {
        check::<f32>(shape, &[3, 200, 1, 0, 90], &[1, 2, 3, 8]);
        check::<bf16>(shape, &[3, 200, 1, 0, 90], &[1, 2, 3, 8]);
    }
}

#[test]
fn threads_that_share_one_sequence_and_head_change_no_bit() {
    let shape = AttentionShape {
        heads: 3,
        kv_heads: 1,
        ..shapes()[0]
    };
    let windowed = AttentionShape {
        window: Some(150),
        ..shape
    };
    let visible = AttentionShape {
        future: Future::Visible,
        ..shape
    };
    for shape in [shape, windowed, visible] {
        check::<f32>(shape, &[900], &[2, 3, 5, 8]);
        check::<bf16>(shape, &[900], &[2, 3, 5, 8]);
    }
}
