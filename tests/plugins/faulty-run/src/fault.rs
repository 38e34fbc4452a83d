//! The environment -> which callback fails, how, and from when on. Options are not used: a run that
//! resumes with a fixed plugin is the same run.

use std::env;
use std::path::Path;

use espalier_interface::{ErrorCode, PluginError, Result};

/// The fault: `CALLBACK:KIND`, where the kind is `panic`, `hang`, `long`, `error`, `bytes`,
/// `zeros`, `reply=TEXT` or an invalid value of the callback.
const FAULT: &str = "FAULTY_RUN";
/// The name of a system thread: other threads do not fail.
const ON: &str = "FAULTY_RUN_ON";
/// The rank of a process under Open MPI: other processes do not fail.
const RANK: &str = "FAULTY_RUN_RANK";
/// A path: nothing fails before it exists.
const AFTER: &str = "FAULTY_RUN_AFTER";
/// A path: a hanging callback creates this file.
const SIGN: &str = "FAULTY_RUN_SIGN";

/// The kind of fault that `callback` has now.
pub fn of(callback: &str) -> Option<String> {
    let fault = env::var(FAULT).ok()?;
    let (failing, kind) = fault.split_once(':')?;
    if failing != callback {
        return None;
    }
    let started = env::var_os(AFTER).is_none_or(|path| Path::new(&path).exists());
    let elsewhere = env::var(ON).is_ok_and(|name| thread_name() != name)
        || env::var(RANK).is_ok_and(|rank| env::var("OMPI_COMM_WORLD_RANK") != Ok(rank));
    (started && !elsewhere).then(|| kind.to_owned())
}

/// The system's name of this thread, which the host sets.
fn thread_name() -> String {
    let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default();
    name.trim_end().to_owned()
}

/// True if `callback` returns the invalid value `kind` now.
pub fn is(callback: &str, kind: &str) -> bool {
    of(callback).as_deref() == Some(kind)
}

/// Fails if `callback` fails now.
pub fn fail_if_due(callback: &str) -> Result<()> {
    let fail = |message: String| Err(PluginError::new(ErrorCode::DEVICE, message));
    match of(callback).as_deref() {
        Some("panic") => panic!("{callback} was told to panic"),
        Some("hang") => {
            if let Some(sign) = env::var_os(SIGN) {
                std::fs::write(sign, callback).expect("a sign can be given");
            }
            loop {
                std::thread::park();
            }
        }
        Some("error") => fail(format!("{callback} was told to fail")),
        Some("bytes") => {
            let bytes = [b"no \xff\xfe text of ", callback.as_bytes()].concat();
            // SAFETY: none. This is the fault: a text that is no text.
            fail(unsafe { String::from_utf8_unchecked(bytes) })
        }
        // Valid UTF-8, but not a valid text.
        Some("zeros") => fail(format!("\u{2}\0{callback}\0")),
        _ => Ok(()),
    }
}
