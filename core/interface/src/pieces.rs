//! Work cut into pieces -> the host's threads; bytes of workspace -> numbers.
#![allow(unsafe_code)] // Bytes of a workspace as numbers.

use std::sync::{Mutex, PoisonError};

use crate::{PluginError, Result, Services};

/// Runs `work` on each of `pieces` by the threads of `services`, and returns what it gives, in the
/// order of the pieces. Pieces are usually chunks of several slices, zipped: they share no byte, so
/// that no lock is needed. Work that can fail gives results, which `collect` makes one of.
///
/// ```
/// use espalier_interface::{Serial, in_pieces};
///
/// let weight = [1.0f32, -2.0, 3.0, 0.5];
/// let mut codes = [0u8; 4];
/// let pieces = weight.chunks(2).zip(codes.chunks_mut(2)).collect();
/// let absmax = in_pieces(&Serial, pieces, |(weight, codes): (&[f32], &mut [u8])| {
///     let absmax = weight.iter().fold(0.0f32, |most, x| most.max(x.abs()));
///     for (x, code) in weight.iter().zip(codes) {
///         *code = ((x / absmax + 1.0) * 127.0).round() as u8;
///     }
///     absmax
/// });
/// assert_eq!(absmax, [2.0, 3.0]);
/// assert_eq!(codes, [191, 0, 254, 148]);
/// ```
pub fn in_pieces<P: Send, T: Send>(
    services: &(impl Services + ?Sized),
    pieces: Vec<P>,
    work: impl Fn(P) -> T + Sync,
) -> Vec<T> {
    let pieces: Vec<_> = pieces
        .into_iter()
        .map(|one| Mutex::new(Some(one)))
        .collect();
    let done: Vec<_> = pieces.iter().map(|_| Mutex::new(None)).collect();
    services.parallel_for(pieces.len(), &|index| {
        let piece = pieces[index]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let result = work(piece.expect("each index comes once"));
        *done[index].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    });
    let done = done.into_iter();
    let result = |one: Mutex<Option<T>>| one.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.map(|one| result(one).expect("each index comes once"))
        .collect()
}

/// Bytes of workspace in which [`f32_workspace`] finds `numbers` numbers, wherever it begins.
pub const fn f32_workspace_bytes(numbers: u64) -> u64 {
    numbers.saturating_mul(4).saturating_add(3)
}

/// The first `numbers` aligned numbers of a workspace; they hold anything.
///
/// # Errors
/// `INVALID` where it has no room for them.
pub fn f32_workspace(workspace: &mut [u8], numbers: usize) -> Result<&mut [f32]> {
    let found = workspace.len();
    // SAFETY: every bit pattern is an f32, and an f32 has no padding.
    let (_, aligned, _) = unsafe { workspace.align_to_mut::<f32>() };
    aligned.get_mut(..numbers).ok_or_else(|| {
        let expected = f32_workspace_bytes(numbers as u64);
        PluginError::invalid(format!(
            "a workspace for {numbers} numbers of 4 bytes: expected {expected} bytes, found {found}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Serial;

    #[test]
    fn results_are_in_the_order_of_the_pieces() {
        assert_eq!(in_pieces(&Serial, vec![3, 1, 2], |x| x * 2), [6, 2, 4]);
        let tried = in_pieces(
            &Serial,
            vec![3, 1, 2],
            |x| if x > 2 { Ok(x) } else { Err(x) },
        );
        assert_eq!(
            tried
                .into_iter()
                .collect::<std::result::Result<Vec<_>, _>>(),
            Err(1)
        );
    }

    #[test]
    fn numbers_are_found_wherever_the_workspace_begins() {
        for begin in 0..8 {
            let mut bytes = vec![0u8; begin + f32_workspace_bytes(5) as usize];
            let numbers = f32_workspace(&mut bytes[begin..], 5).expect("room");
            numbers.fill(1.5);
            assert_eq!(numbers, [1.5; 5]);
        }
        let short = f32_workspace(&mut [0; 19], 5).expect_err("no room");
        assert!(
            short.message.contains("expected 23 bytes, found 19"),
            "{short}"
        );
    }
}
