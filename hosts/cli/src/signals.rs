//! Signals -> requests to the run. The first Ctrl-C or SIGTERM asks it to stop and save, the second
//! ends it at once. A closed terminal or connection asks the same, however often. SIGUSR1 asks for
//! a checkpoint.
#![allow(unsafe_code)] // Current actions of signals, and a handler that counts.

use std::io;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use espalier_system::stop::StopFlag;
use libc::c_int;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::{flag, low_level};

/// Registers handlers that set `stop`. A write beyond the limit of a file's size fails as on a full
/// disk, and does not end the process.
pub fn watch(stop: &StopFlag) -> io::Result<()> {
    let seen_before = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The order matters: handlers run as registered, so this one still reads the old value.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&seen_before))?;
        flag::register(signal, Arc::clone(&seen_before))?;
        flag::register_usize(signal, stop.cell(), signal.unsigned_abs() as usize)?;
    }
    // A closed terminal sends several: one from the system, one from the shell. Under nohup they
    // are ignored.
    if !is_ignored(SIGHUP)? {
        flag::register_usize(SIGHUP, stop.cell(), SIGHUP.unsigned_abs() as usize)?;
    }
    let asked = stop.clone();
    // SAFETY: the handler adds to an atomic number, which is safe in handlers.
    unsafe { low_level::register(SIGUSR1, move || asked.request_save())? };
    Ok(())
}

/// Lets a write beyond the limit on a file's size fail with an error, as on a full disk.
///
/// # Errors
/// The `io::Error` of a handler that cannot be set.
pub fn let_large_writes_fail() -> io::Result<()> {
    // The handler does nothing: its presence lets the write return its error.
    flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// Whether the parent process set `signal` to be ignored.
fn is_ignored(signal: c_int) -> io::Result<bool> {
    // SAFETY: the struct is plain data, and zeros are a valid value of it; the call fills it and
    // changes nothing.
    unsafe {
        let mut found: libc::sigaction = std::mem::zeroed();
        match libc::sigaction(signal, ptr::null(), &mut found) {
            0 => Ok(found.sa_sigaction == libc::SIG_IGN),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_ask_to_stop_or_to_save_and_leave_the_process_alive() {
        let stop = StopFlag::new();
        // Under nohup it is ignored, and would stay so.
        // SAFETY: the signal's default comes from the system.
        unsafe { libc::signal(SIGHUP, libc::SIG_DFL) };
        watch(&stop).expect("handlers can be set");
        assert_eq!((stop.requested(), stop.saves_requested()), (None, 0));
        let raise = |signal| low_level::raise(signal).expect("a process may signal itself");
        raise(SIGUSR1);
        raise(SIGUSR1);
        assert_eq!((stop.requested(), stop.saves_requested()), (None, 2));
        for _ in 0..3 {
            raise(SIGHUP);
            assert_eq!(stop.requested(), Some(SIGHUP));
        }
        raise(SIGTERM);
        assert_eq!(stop.requested(), Some(SIGTERM));
    }
}
