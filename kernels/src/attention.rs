//! Queries, keys and values of packed sequences -> softmax attention and its gradients.
//!
//! Legend: `T` tokens, `H` heads, `J` key/value heads, `K` head width, `S` sequences. Head `h`
//! reads key/value head `h / (H / J)`. Query `i` of a sequence sees key `j` of the same sequence
//! where `j <= i` (if causal) and `i - j < window` (if windowed):
//!
//! `l[i, j] = scale q_i . k_j`, capped to `c tanh(l / c)`; `lse_i = log sum_j exp l[i, j]`;
//! `out_i = sum_j exp(l[i, j] - lse_i) v_j`.
//!
//! All arithmetic is in `E::Acc`, block by block, and no `[T, T]` array exists. With instructions
//! for bf16 ([`Isa::serving`]), products of bf16 take both operands in bf16: weights, and backward
//! the logits' gradients, are rounded once before the product with values, keys, queries or `dout`.
//! Sums, softmax and its sum are in f32, and exponentials take fused multiply-adds; the scale is
//! then multiplied into sums, not into queries. Exponentials of other products are not fused: runs
//! of version 0.1 resume to their bits.
//!
//! Keys are read in blocks of [`KEYS`] counted from the start of their sequence. So the bits of a
//! query's output depend on its own sequence alone: not on the other packed sequences, nor on the
//! number of threads.
//!
//! # Source
//! Online softmax and the recomputed backward pass are FlashAttention's (Dao et al. 2022,
//! algorithms 1 and 4; `D_i = dout_i . out_i` as in its appendix B.2).

mod backward;
mod cached;
mod forward;
mod mask;
mod softmax;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub use backward::{Gradients, backward, backward_workspace_bytes};
pub use cached::{Cache, Start, forward_cached};
pub use forward::{forward, forward_workspace_bytes};

use crate::element::{Element, Real};
use crate::matmul::Isa;
use crate::simd::prefetch;

/// Keys of a block.
pub const KEYS: usize = 128;
/// Keys seen by some rows are multiplied from a multiple of as many on: those of panels of any
/// instruction set.
const PANEL: usize = 32;
/// Approximate rows, heads times queries, of a block in either pass.
const BACKWARD_ROWS: usize = 256;
const FORWARD_ROWS: usize = 512;

/// The shape of an attention and what a query sees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShape {
    /// `H`.
    pub heads: usize,
    /// `J`, a divisor of `H`.
    pub kv_heads: usize,
    /// `K`.
    pub head_dim: usize,
    /// Factor of the logits.
    pub scale: f64,
    /// What a query sees of what follows it.
    pub future: Future,
    /// Tokens back that a query sees, itself included, at least 1; all where unset.
    pub window: Option<usize>,
    /// `c` of `c tanh(l / c)`.
    pub softcap: Option<f64>,
}

/// What a query sees of the tokens after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Future {
    /// Nothing: causal attention.
    Hidden,
    /// All of its sequence.
    Visible,
}

/// The operands that both passes read.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a, E> {
    /// `[T, H K]`.
    pub q: &'a [E],
    /// `[T, J K]`.
    pub k: &'a [E],
    /// `[T, J K]`.
    pub v: &'a [E],
    /// First token of each sequence and, last, `T`: `[S + 1]`, not decreasing from 0.
    pub cu_seqlens: &'a [i32],
}

impl AttentionShape {
    /// Query heads of a key/value head.
    #[inline]
    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Queries of a block backward: with all heads of a group, about [`BACKWARD_ROWS`] rows.
    #[inline]
    fn queries_backward(&self) -> usize {
        self.queries_of(BACKWARD_ROWS)
    }

    /// Queries of a block forward: keys and values are packed for each block, whose size changes no
    /// bit.
    #[inline]
    fn queries_forward(&self) -> usize {
        self.queries_of(FORWARD_ROWS)
    }

    fn queries_of(&self, rows: usize) -> usize {
        (rows / self.group()).next_multiple_of(16).clamp(16, 128)
    }

    /// Elements of a token's queries.
    #[inline]
    fn q_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Elements of a token's keys.
    #[inline]
    fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// `T` of `inputs`.
    ///
    /// # Panics
    /// Where the operands' lengths disagree.
    fn tokens<E>(&self, inputs: &Inputs<'_, E>) -> usize {
        assert!(
            self.kv_heads > 0 && self.head_dim > 0 && self.heads.is_multiple_of(self.kv_heads),
            "{} heads cannot share {} key/value heads",
            self.heads,
            self.kv_heads
        );
        assert!(self.window != Some(0), "a window of 0 tokens shows nothing");
        let tokens = inputs.q.len() / self.q_width();
        assert_eq!(
            inputs.q.len(),
            tokens * self.q_width(),
            "q is not whole tokens"
        );
        assert_eq!(
            inputs.k.len(),
            tokens * self.kv_width(),
            "k has other tokens than q"
        );
        assert_eq!(
            inputs.v.len(),
            tokens * self.kv_width(),
            "v has other tokens than q"
        );
        let cu_seqlens = inputs.cu_seqlens;
        assert!(
            cu_seqlens.first().is_none_or(|&first| first == 0)
                && cu_seqlens.is_sorted()
                && cu_seqlens.last().map_or(0, |&last| last as usize) == tokens,
            "cu_seqlens do not run from 0 to {tokens}"
        );
        tokens
    }
}

/// `count` rounded up to whole vectors of any instruction set.
#[inline]
fn padded(count: usize) -> usize {
    count.next_multiple_of(16)
}

/// Asks for rows of some arrays, `stride` elements apart: for `width` elements from column `at` on.
fn prefetch_rows<E>(of: &[&[E]], rows: Range<usize>, [stride, at, width]: [usize; 3]) {
    for row in rows {
        for of in of {
            prefetch(&of[row * stride + at..][..width]);
        }
    }
}

/// The factors of queries and of sums of products with them, which make the scale. Queries in bf16
/// stay as they are, so that they are not rounded again.
fn factors<S: Real>(isa: Isa, shape: &AttentionShape) -> [S; 2] {
    let scale = S::from_f64(shape.scale);
    if isa == isa.vectors() {
        [scale, S::ONE]
    } else {
        [S::ONE, scale]
    }
}

/// Copies the queries of a group to `out`, `[group, count, K]` in the arithmetic's dtype, times
/// `factor`.
///
/// `start` is the first element of the first query's first head, `stride` that from token to token.
fn gather<E: Element>(
    from: &[E],
    place: (usize, usize),
    sizes: [usize; 3],
    factor: E::Acc,
    out: &mut [E::Acc],
) {
    crate::simd::vectorized(
        #[inline(always)]
        || {
            for (from, out) in heads(from, place, sizes).zip(out.chunks_exact_mut(sizes[2])) {
                for (out, x) in out.iter_mut().zip(from) {
                    *out = x.load() * factor;
                }
            }
        },
    );
}

/// [`gather`] of the queries as they are stored, in front of `memory`.
#[allow(unsafe_code)] // Memory of one dtype for elements of another.
fn gather_stored<'m, E: Element>(
    from: &[E],
    place: (usize, usize),
    sizes: [usize; 3],
    memory: &'m mut [E::Acc],
) -> &'m [E] {
    const { assert!(size_of::<E>() <= size_of::<E::Acc>()) };
    const { assert!(align_of::<E>() <= align_of::<E::Acc>()) };
    let len = sizes.iter().product();
    assert!(memory.len() >= len, "queries have no room");
    // SAFETY: as many elements, none larger or more aligned; any bits are a number.
    let out = unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<E>(), len) };
    for (from, out) in heads(from, place, sizes).zip(out.chunks_exact_mut(sizes[2])) {
        out.copy_from_slice(from);
    }
    out
}

/// The `[group, count]` rows of K elements of a group's queries.
#[inline(always)]
fn heads<E>(
    from: &[E],
    (start, stride): (usize, usize),
    [group, count, width]: [usize; 3],
) -> impl Iterator<Item = &[E]> {
    let row = move |head: usize, query: usize| {
        let at = start + query * stride + head * width;
        &from[at..at + width]
    };
    (0..group).flat_map(move |head| (0..count).map(move |query| row(head, query)))
}
