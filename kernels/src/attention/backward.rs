//! The gradient of attention's output -> those of its queries, keys and values.
//!
//! One task is a block of queries and a key/value head. Tasks of one sequence and head add to the
//! gradients of its keys one after the other (`order.rs`), so that the bits do not depend on the
//! order of threads.

mod memory;
mod order;
mod task;
mod weights;

use espalier_interface::Services;

use self::memory::BackwardMemory;
use self::order::TaskOrder;
use self::task::Backward;
use super::{AttentionShape, Inputs, padded};
use crate::element::Element;
use crate::matmul::{Isa, Scalar, each_task_sharing, slot_bytes};
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
    let shared = shared(shape, max_tokens);
    slot_bytes::<E::Acc>(shared, BackwardMemory::<E::Acc>::room(shape), threads)
        + order::workspace_bytes(shape, max_tokens)
}

/// Elements that all tasks share: the sums of `tokens` keys' and values' gradients.
fn shared(shape: &AttentionShape, tokens: usize) -> usize {
    2 * tokens * shape.kv_heads * padded(shape.head_dim)
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
    let (order, workspace) = TaskOrder::new(shape, inputs.cu_seqlens, workspace);
    let task = Backward {
        isa: isa.checked().serving(E::DTYPE),
        shape,
        inputs,
        dout,
        out,
        lse,
        dq: Parts::new(dq),
        dk: Parts::new(dk),
        dv: Parts::new(dv),
    };
    let sizes = [shared(shape, tokens), BackwardMemory::<E::Acc>::room(shape)];
    let run = |idx: usize, sums: &Parts<'_, E::Acc>, memory: &mut [E::Acc]| {
        // What the thread takes next, if all are equally fast.
        let later = idx + services.threads();
        let later = (later < order.tasks()).then(|| order.place(later));
        task.backward((order.place(idx), later), order.turn(idx), sums, memory);
    };
    each_task_sharing(services, order.tasks(), sizes, workspace, run);
}
