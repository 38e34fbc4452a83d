//! Groups of a card's collective that are lost: what a stream did for them is not what was asked.
//!
//! NCCL ends the kernels of a group that is given up like any others, without results, and the
//! driver knows of no failure. So the card's streams ask here once their work is done.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use espalier_interface::{PluginError, Result};

/// A group of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupId(u64);

impl GroupId {
    /// A group that is not lost.
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        GroupId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A lost group.
struct Lost {
    card: u32,
    group: GroupId,
    error: PluginError,
}

static LOST: Mutex<Vec<Lost>> = Mutex::new(Vec::new());

/// How many there are, so that a sound run asks for no lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

// A panic while the lock is held leaves the list valid.
fn lost() -> MutexGuard<'static, Vec<Lost>> {
    LOST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on the streams of card number `card` report `error`, until `group` is forgotten.
pub fn report(card: u32, group: GroupId, error: PluginError) {
    let mut lost = lost();
    lost.push(Lost { card, group, error });
    COUNT.store(lost.len(), Ordering::SeqCst);
}

/// Forgets a group, which all have left.
pub fn forget(group: GroupId) {
    let mut lost = lost();
    lost.retain(|one| one.group != group);
    COUNT.store(lost.len(), Ordering::SeqCst);
}

/// Whether what the streams of card number `card` did so far is what was asked.
///
/// # Errors
/// The error of the first group of the card that is lost.
pub fn check(card: u32) -> Result<()> {
    if COUNT.load(Ordering::SeqCst) == 0 {
        return Ok(());
    }
    let lost = lost();
    let found = lost.iter().find(|one| one.card == card);
    found.map_or(Ok(()), |one| Err(one.error.clone()))
}

#[cfg(test)]
mod tests {
    use espalier_interface::ErrorCode;

    use super::*;

    #[test]
    fn streams_of_a_card_report_its_lost_groups_until_they_are_forgotten() {
        let [first, second] = [GroupId::new(), GroupId::new()];
        let error = |what: &str| PluginError::new(ErrorCode::PEER, what);
        let found = || check(1_000_003).map_err(|error| error.message);
        assert_eq!(found(), Ok(()));
        report(1_000_003, first, error("first"));
        report(1_000_003, second, error("second"));
        assert_eq!(found(), Err("first".to_owned()));
        assert!(check(1_000_004).is_ok());
        forget(first);
        assert_eq!(found(), Err("second".to_owned()));
        forget(second);
        assert_eq!(found(), Ok(()));
    }
}
