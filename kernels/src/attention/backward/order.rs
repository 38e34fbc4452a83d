//! The bounds of packed sequences -> the order of tasks, the longest first.
#![allow(unsafe_code)] // Numbers in a workspace of bytes.

/// Tokens of sequence `seq`.
pub fn length(cu_seqlens: &[i32], seq: u32) -> usize {
    (cu_seqlens[seq as usize + 1] - cu_seqlens[seq as usize]) as usize
}

/// The sequences that have tokens, the longest first, written into the front of `workspace`; and
/// the rest of it.
pub fn longest_first<'a>(cu_seqlens: &[i32], workspace: &'a mut [u8]) -> (&'a [u32], &'a mut [u8]) {
    let sequences = || 0..cu_seqlens.len().saturating_sub(1) as u32;
    let count = sequences()
        .filter(|&seq| length(cu_seqlens, seq) > 0)
        .count();
    let skip = workspace.as_ptr().align_offset(align_of::<u32>());
    let bytes = skip + count * size_of::<u32>();
    assert!(
        bytes <= workspace.len(),
        "the workspace has no room for {count} sequences"
    );
    let (front, rest) = workspace.split_at_mut(bytes);
    // SAFETY: aligned, of this length, and every bit pattern is a valid number.
    let order = unsafe { std::slice::from_raw_parts_mut(front[skip..].as_mut_ptr().cast(), count) };
    let filled = sequences().filter(|&seq| length(cu_seqlens, seq) > 0);
    order
        .iter_mut()
        .zip(filled)
        .for_each(|(slot, seq)| *slot = seq);
    order.sort_unstable_by_key(|&seq| (std::cmp::Reverse(length(cu_seqlens, seq)), seq));
    (order, rest)
}
