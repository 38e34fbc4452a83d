//! Memory of the host's that is registered with CUDA: once for all devices of the process.
#![allow(unsafe_code)] // Calls of the driver.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::card::Card;

/// Memory that every context sees as pinned.
const PORTABLE: u32 = 1;

/// A range of registered memory.
struct Registered {
    bytes: usize,
    /// How many devices have it.
    devices: usize,
}

/// The registered ranges of this process, by address.
static RANGES: Mutex<Option<HashMap<usize, Registered>>> = Mutex::new(None);

fn ranges() -> MutexGuard<'static, Option<HashMap<usize, Registered>>> {
    RANGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers memory, or counts one more device that has it.
///
/// # Errors
/// The driver's words where it refuses: a limit on locked memory is reached, or a part of the
/// memory is registered already.
pub fn register(
    card: &Card,
    address: NonNull<u8>,
    bytes: usize,
) -> std::result::Result<(), String> {
    let mut ranges = ranges();
    let ranges = ranges.get_or_insert_default();
    let key = address.as_ptr() as usize;
    if let Some(found) = ranges.get_mut(&key) {
        if bytes > found.bytes {
            return Err("a shorter range is registered from the same address on".to_owned());
        }
        found.devices += 1;
        return Ok(());
    }
    let registered = card.enter().and_then(|()| {
        let address = address.as_ptr().cast();
        // SAFETY: the host lends the memory until the buffer is freed.
        let code = unsafe { (card.driver.register_host)(address, bytes, PORTABLE) };
        card.called("registration of memory", code)
    });
    registered.map_err(|error| error.message)?;
    ranges.insert(key, Registered { bytes, devices: 1 });
    Ok(())
}

/// Ends the registration when no device has the memory any more.
///
/// # Safety
/// It was registered for this device, and no copy uses it.
pub unsafe fn unregister(card: &Card, address: NonNull<u8>) {
    let mut ranges = ranges();
    let ranges = ranges.get_or_insert_default();
    let key = address.as_ptr() as usize;
    let Some(found) = ranges.get_mut(&key) else {
        return;
    };
    found.devices -= 1;
    if found.devices > 0 {
        return;
    }
    ranges.remove(&key);
    if card.enter().is_ok() {
        // SAFETY: the caller's; the driver has it registered once.
        unsafe { (card.driver.unregister_host)(address.as_ptr().cast()) };
    }
}
