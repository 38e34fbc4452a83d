//! A task's share of the workspace -> its packed operands, weights and running sums.

use crate::attention::{AttentionShape, KEYS, padded};
use crate::matmul::{ROW, STRIP, Scalar, Side};

const _: () = assert!(KEYS == ROW);

/// The memory of a task. Rows are a group's heads times the queries of a block.
pub struct BackwardMemory<'a, S> {
    /// The queries of a block, times their factor, packed as the left side of logits.
    pub q: &'a mut [S],
    /// The gradient of the output, packed as the left side of the weights' gradients.
    pub dout: &'a mut [S],
    /// The queries, packed as the right side of the keys' gradients.
    pub q_rows: &'a mut [S],
    /// The gradient of the output, packed as the right side of the values' gradients.
    pub dout_rows: &'a mut [S],
    /// The packed keys of a block for logits, its values, and its keys for the queries' gradients.
    pub keys: [&'a mut [S]; 3],
    /// Weights, and gradients of logits, packed as the left sides of the gradients of values and of
    /// keys.
    pub by_key: [&'a mut [S]; 2],
    /// What is widened to be packed.
    pub strip: &'a mut [S],
    /// What each block of keys changes.
    pub results: Weights<'a, S>,
    /// Log-sum-exp of the logits, `[rows]`.
    pub lse: &'a mut [S],
    /// `dout . out`, `[rows]`.
    pub delta: &'a mut [S],
}

impl<'a, S: Scalar> BackwardMemory<'a, S> {
    /// Elements of each field, in their order: whole vectors.
    fn sizes(shape: &AttentionShape) -> [usize; 15] {
        let (rows, width) = (shape.queries_backward() * shape.group(), shape.head_dim);
        let (left, right) = (Side::<S>::room(rows, width), Side::<S>::room(width, rows));
        let keys = Side::<S>::room(KEYS, width);
        [
            left,
            left,
            right,
            right,
            keys,
            keys,
            Side::<S>::room(width, KEYS),
            Side::<S>::room(KEYS, rows),
            Side::<S>::room(KEYS, rows),
            STRIP,
            rows * KEYS,
            rows * KEYS,
            rows * padded(width),
            padded(rows),
            padded(rows),
        ]
    }

    /// Elements of all fields.
    pub fn room(shape: &AttentionShape) -> usize {
        Self::sizes(shape).iter().sum()
    }

    pub fn new(shape: &AttentionShape, mut memory: &'a mut [S]) -> Self {
        let [
            q,
            dout,
            q_rows,
            dout_rows,
            k,
            v,
            k_rows,
            weights_by_key,
            dlogits_by_key,
            strip,
            weights,
            dlogits,
            dq,
            lse,
            delta,
        ] = Self::sizes(shape).map(|size| {
            let (field, rest) = std::mem::take(&mut memory).split_at_mut(size);
            memory = rest;
            field
        });
        BackwardMemory {
            q,
            dout,
            q_rows,
            dout_rows,
            keys: [k, v, k_rows],
            by_key: [weights_by_key, dlogits_by_key],
            strip,
            results: Weights {
                weights,
                dlogits,
                dq,
            },
            lse,
            delta,
        }
    }
}

/// A block of queries of one group of heads, `[group, count]` rows, packed for its products, with
/// its intermediate results.
pub struct Queries<'a, S> {
    /// Times their factor, the left side of logits.
    pub q: Side<'a, S>,
    /// Gradient of the output, the left side of the weights' gradients.
    pub dout: Side<'a, S>,
    /// The queries, the right side of the keys' gradients.
    pub q_rows: Side<'a, S>,
    /// Gradient of the output, the right side of the values' gradients.
    pub dout_rows: Side<'a, S>,
    /// Log-sum-exp of the logits, `[rows]`.
    pub lse: &'a [S],
    /// `dout . out`, `[rows]`.
    pub delta: &'a [S],
}

/// A block's weights and gradients of logits for some keys.
pub struct Weights<'a, S> {
    /// Logits, then weights, `[rows, KEYS]`; with instructions for bf16 rounded in the end, each
    /// row in front of its memory.
    pub weights: &'a mut [S],
    /// Gradients of weights, then of logits, in the same way.
    pub dlogits: &'a mut [S],
    /// Gradient of the unscaled queries before it is scaled, `[rows, K]`, each row padded.
    pub dq: &'a mut [S],
}
