//! The integers of an attention's launch, checked: boundaries of sequences, and places in a cache.

use espalier_interface::{PluginError, Result};

/// Checked boundaries of sequences: from 0, not decreasing, to `tokens`.
///
/// # Errors
/// `INVALID` for others.
pub fn boundaries(cu_seqlens: &[i32], tokens: usize) -> Result<&[i32]> {
    let ordered = cu_seqlens.windows(2).all(|pair| pair[0] <= pair[1]);
    let ends = (cu_seqlens.first(), cu_seqlens.last());
    if ordered && ends == (Some(&0), Some(&(tokens as i32))) {
        return Ok(cu_seqlens);
    }
    let what = format!("cu_seqlens: expected to rise from 0 to {tokens}, found {ends:?}");
    Err(PluginError::invalid(what))
}

/// Where each sequence of a launch of `attention_cached` continues.
#[derive(Clone, Copy, Debug)]
pub struct CacheStarts<'a> {
    cu_seqlens: &'a [i32],
    positions: &'a [i32],
    sequences: &'a [i32],
}

/// Where a sequence continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheStart {
    /// The slot of the cache.
    pub slot: usize,
    /// Tokens that the slot holds before.
    pub held: usize,
}

impl<'a> CacheStarts<'a> {
    /// The starts of sequences with checked boundaries, given each token's position and slot. The
    /// cache has `slots` slots of `capacity` tokens.
    ///
    /// # Errors
    /// `INVALID` for slots and places outside the cache, and slots used twice.
    pub fn new(
        cu_seqlens: &'a [i32],
        [positions, sequences]: [&'a [i32]; 2],
        [slots, capacity]: [usize; 2],
    ) -> Result<Self> {
        let starts = CacheStarts {
            cu_seqlens,
            positions,
            sequences,
        };
        let fail = |what: String| Err(PluginError::invalid(format!("attention_cached: {what}")));
        for seq in 0..cu_seqlens.len().saturating_sub(1) {
            let new = starts.tokens(seq);
            let CacheStart { slot, held } = starts.at(seq);
            if new > 0 && slot >= slots {
                return fail(format!("sequence {seq} is in slot {slot} of {slots}"));
            }
            if held.saturating_add(new) > capacity {
                return fail(format!(
                    "{new} tokens at {held} leave a slot of {capacity} tokens"
                ));
            }
            let twice = |other: usize| starts.at(other).slot == slot && starts.tokens(other) > 0;
            if new > 0 && (0..seq).any(twice) {
                return fail(format!("slot {slot} is used twice in a launch"));
            }
        }
        Ok(starts)
    }

    /// Where sequence `seq` continues; one without tokens starts where slot 0 starts.
    pub fn at(&self, seq: usize) -> CacheStart {
        let first = self.cu_seqlens[seq] as usize;
        let place = |values: &[i32]| match self.tokens(seq) {
            0 => 0,
            _ => usize::try_from(values[first]).unwrap_or(usize::MAX),
        };
        CacheStart {
            slot: place(self.sequences),
            held: place(self.positions),
        }
    }

    /// The tokens of sequence `seq`.
    fn tokens(&self, seq: usize) -> usize {
        (self.cu_seqlens[seq + 1] - self.cu_seqlens[seq]) as usize
    }
}
