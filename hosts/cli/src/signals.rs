//! Ctrl-C and termination: the first asks the run to stop and save, the second ends it at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use espalier_trainer::stop::StopFlag;
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;

/// Lets both signals set `stop` to their number. A write beyond the limit of a file's size fails as
/// on a full disk, and does not end the process.
pub fn watch(stop: &StopFlag) -> io::Result<()> {
    let seen_before = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The order matters: handlers run as registered, so this one still sees the old value.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&seen_before))?;
        flag::register(signal, Arc::clone(&seen_before))?;
        flag::register_usize(signal, stop.cell(), signal.unsigned_abs() as usize)?;
    }
    // The handler does nothing of use: that there is one lets the write return its error.
    flag::register(SIGXFSZ, Arc::default())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_signal_asks_to_stop_and_leaves_the_process_alive() {
        let stop = StopFlag::new();
        watch(&stop).expect("handlers can be set");
        assert_eq!(stop.requested(), None);
        signal_hook::low_level::raise(SIGTERM).expect("a process may signal itself");
        assert_eq!(stop.requested(), Some(SIGTERM));
    }
}
