//! Products of bf16 by instructions that multiply pairs: how they are packed.
//!
//! A step of a panel holds two elements of the depth, `2p` and `2p + 1`, of each lane: a *pair*, of
//! 32 bits, the even element in the low half. Operands of other dtypes are rounded to bf16 once,
//! while they are packed. Sums are in f32. Where the depth is odd, the last pair is filled up with
//! 0; with tiles, so are the panels of columns to whole ones. Panels of pairs are stored in memory
//! for f32 and are only copied as such.

#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
#[cfg(target_arch = "x86_64")]
mod codes;
mod pack;

pub(super) use pack::{Values, pack, round_rows, window};

#[cfg(test)]
pub(super) mod tests;
