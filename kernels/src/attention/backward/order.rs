//! The bounds of packed sequences -> tasks, those of the longest sequence first, and how far each
//! of them is.
//!
//! A task is a block of queries and a key/value head. Of one sequence and head, the tasks add to
//! the same gradients of keys, block of keys after block of keys. At each of them a task waits for
//! the one before it. So every sum has one order, and the tasks of one sequence overlap but for one
//! block of keys. A task waits for an earlier one only, which a running thread has taken. So the
//! last is reached, on any number of threads.
#![allow(unsafe_code)] // Numbers in a workspace of bytes.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::attention::AttentionShape;

/// Bytes of workspace for the order of the tasks of up to `max_tokens` tokens.
pub fn workspace_bytes(shape: &AttentionShape, max_tokens: usize) -> usize {
    let numbers = max_tokens * (2 + shape.kv_heads);
    numbers * size_of::<u32>() + align_of::<u32>()
}

/// The order of tasks.
pub struct TaskOrder<'a> {
    cu_seqlens: &'a [i32],
    /// Queries of a block.
    queries: usize,
    kv_heads: usize,
    /// The sequences that have tokens, the longest first.
    sequences: &'a [u32],
    /// Blocks of queries of each of them and of those before it.
    ends: &'a [u32],
    /// For each task, the key blocks that it and those before it are through with.
    done: &'a [AtomicU32],
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The tokens of its sequence.
    pub sequence: Range<usize>,
    /// Its key/value head.
    pub head: usize,
    /// Its queries, counted from the start of the sequence.
    pub queries: Range<usize>,
}

/// A task's place among those that add to the same gradients.
pub struct Turn<'a> {
    before: Option<&'a AtomicU32>,
    own: &'a AtomicU32,
}

impl<'a> TaskOrder<'a> {
    /// The order of the tasks of these sequences, written into the front of `workspace`; and the
    /// rest of it.
    ///
    /// # Panics
    /// Where `workspace` is under [`workspace_bytes`] of the tokens.
    pub fn new(
        shape: &AttentionShape,
        cu_seqlens: &'a [i32],
        workspace: &'a mut [u8],
    ) -> (Self, &'a mut [u8]) {
        let queries = shape.queries_backward();
        let len = |seq: u32| bounds(cu_seqlens, seq).len();
        let filled = || (0..cu_seqlens.len().saturating_sub(1) as u32).filter(|&seq| len(seq) > 0);
        let (sequences, rest) = numbers(workspace, filled().count());
        sequences
            .iter_mut()
            .zip(filled())
            .for_each(|(x, seq)| *x = seq);
        sequences.sort_unstable_by_key(|&seq| (std::cmp::Reverse(len(seq)), seq));
        let (ends, rest) = numbers(rest, sequences.len());
        let mut blocks = 0;
        for (end, &seq) in ends.iter_mut().zip(&*sequences) {
            blocks += len(seq).div_ceil(queries) as u32;
            *end = blocks;
        }
        let (done, rest) = numbers(rest, blocks as usize * shape.kv_heads);
        done.fill(0);
        // SAFETY: an atomic number has the layout of a plain one; it is borrowed here alone.
        let done = unsafe { std::slice::from_raw_parts(done.as_ptr().cast(), done.len()) };
        let order = TaskOrder {
            cu_seqlens,
            queries,
            kv_heads: shape.kv_heads,
            sequences,
            ends,
            done,
        };
        (order, rest)
    }

    /// The number of tasks.
    pub fn tasks(&self) -> usize {
        self.done.len()
    }

    /// Task `idx`. Of a block of queries, all heads follow each other.
    pub fn place(&self, idx: usize) -> Place {
        let (block, head) = (idx / self.kv_heads, idx % self.kv_heads);
        let at = self.ends.partition_point(|&end| end as usize <= block);
        let sequence = bounds(self.cu_seqlens, self.sequences[at]);
        let first = at.checked_sub(1).map_or(0, |before| self.ends[before]) as usize;
        let start = (block - first) * self.queries;
        Place {
            head,
            queries: start..(start + self.queries).min(sequence.len()),
            sequence,
        }
    }

    /// The turn of task `idx`.
    pub fn turn(&self, idx: usize) -> Turn<'_> {
        let is_first = self.place(idx).queries.start == 0;
        Turn {
            before: (!is_first).then(|| &self.done[idx - self.kv_heads]),
            own: &self.done[idx],
        }
    }
}

impl Turn<'_> {
    /// Returns when the task before is through with key block `block`. It is being computed, by a
    /// thread that may have lost its processor.
    pub fn wait_for(&self, block: usize) {
        let Some(before) = self.before else { return };
        let mut turns = 0;
        while before.load(Ordering::Acquire) as usize <= block {
            if turns < 100 {
                std::hint::spin_loop();
                turns += 1;
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// Says that the task is through with all key blocks up to `block`.
    pub fn finish(&self, block: usize) {
        self.own.store(block as u32 + 1, Ordering::Release);
    }
}

/// A task is through with all blocks when it ends, also by a panic, so that no thread waits for it.
impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.own.store(u32::MAX, Ordering::Release);
    }
}

/// The tokens of sequence `seq`.
fn bounds(cu_seqlens: &[i32], seq: u32) -> Range<usize> {
    cu_seqlens[seq as usize] as usize..cu_seqlens[seq as usize + 1] as usize
}

/// `count` numbers, of any values, in front of `workspace`, and the rest of it.
fn numbers(workspace: &mut [u8], count: usize) -> (&mut [u32], &mut [u8]) {
    let skip = workspace.as_ptr().align_offset(align_of::<u32>());
    let bytes = skip + count * size_of::<u32>();
    assert!(
        bytes <= workspace.len(),
        "the workspace has no room for {count} numbers"
    );
    let (front, rest) = workspace.split_at_mut(bytes);
    let start = front[skip..].as_mut_ptr().cast();
    // SAFETY: aligned, of this length, and every bit pattern is a valid number.
    (
        unsafe { std::slice::from_raw_parts_mut(start, count) },
        rest,
    )
}

#[cfg(test)]
mod tests;
