//! A task's share of the workspace -> its packed operands, logits and running sums.

use crate::attention::{AttentionShape, KEYS, padded};
use crate::matmul::{PANEL_ROWS, ROW, STRIP, Scalar, Side};

/// Most rows of which logits exist at a time.
pub const ROWS: usize = 32;
const _: () = assert!(KEYS == ROW && ROWS >= PANEL_ROWS);

/// The memory of a task.
pub struct ForwardMemory<'a, S> {
    /// The packed queries of a block, times their factor.
    pub q: &'a mut [S],
    /// The packed keys of a block.
    pub keys: &'a mut [S],
    /// Its packed values.
    pub values: &'a mut [S],
    /// What is widened to be packed.
    pub strip: &'a mut [S],
    /// Logits of some rows, then their exponentials, `[rows, KEYS]`.
    pub logits: &'a mut [S],
    /// As in [`State`].
    pub sums: &'a mut [S],
    pub most: &'a mut [S],
    pub total: &'a mut [S],
}

impl<'a, S: Scalar> ForwardMemory<'a, S> {
    /// Elements of each field, in their order: whole vectors.
    pub fn sizes(shape: &AttentionShape) -> [usize; 8] {
        let (rows, width) = (shape.queries_forward() * shape.group(), shape.head_dim);
        [
            Side::<S>::room(rows, width),
            Side::<S>::room(KEYS, width),
            Side::<S>::room(width, KEYS),
            STRIP,
            ROWS * KEYS,
            rows * padded(width),
            padded(rows),
            padded(rows),
        ]
    }

    pub fn new(shape: &AttentionShape, mut memory: &'a mut [S]) -> Self {
        let [q, keys, values, strip, logits, sums, most, total] = Self::sizes(shape).map(|size| {
            let (field, rest) = std::mem::take(&mut memory).split_at_mut(size);
            memory = rest;
            field
        });
        ForwardMemory {
            q,
            keys,
            values,
            strip,
            logits,
            sums,
            most,
            total,
        }
    }
}

/// The sums of a block's rows so far.
pub struct State<'a, S> {
    /// Of values times weights, `[rows, K]`, each row padded.
    pub sums: &'a mut [S],
    /// The largest logit, `[rows]`.
    pub most: &'a mut [S],
    /// Of weights, `[rows]`.
    pub total: &'a mut [S],
}
