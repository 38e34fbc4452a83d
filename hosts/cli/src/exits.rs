//! A call of `exit` by a library -> a last line that names the plugin's call, and the exit code of
//! plugins. A library that ends the program during work must not look like success.
#![allow(unsafe_code)] // Exit handlers, and `_exit`.

use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use espalier_trainer::call_site::{self, Call};
use libc::c_int;

use crate::display;

/// Exit code of a plugin's fault.
pub const PLUGIN: c_int = 5;

/// Set once the program itself ends.
static OVER: AtomicBool = AtomicBool::new(false);

/// The watched process: processes that a library forks are not watched.
static WATCHED: AtomicU32 = AtomicU32::new(0);

/// The program is at work until this is dropped.
pub struct AtWork(());

/// From now on an `exit` before the program's own end is reported, and ends it with the exit code
/// of plugins. `_exit`, which runs no handlers, cannot be intercepted.
pub fn watch() -> AtWork {
    WATCHED.store(process::id(), Ordering::SeqCst);
    // SAFETY: the function is part of the program, so it exists at the end. Where the system
    // accepts no further handlers, nothing is watched.
    unsafe { libc::atexit(at_exit) };
    AtWork(())
}

impl Drop for AtWork {
    fn drop(&mut self) {
        OVER.store(true, Ordering::SeqCst);
    }
}

/// Called by the thread that called `exit`.
extern "C" fn at_exit() {
    if OVER.load(Ordering::SeqCst) || WATCHED.load(Ordering::SeqCst) != process::id() {
        return;
    }
    display::say_last(&line(call_site::current()));
    // SAFETY: ends the process at once and runs none of its exit handlers.
    unsafe { libc::_exit(PLUGIN) }
}

/// The last line; `call` is the thread's pending plugin call.
fn line(call: Option<Call>) -> String {
    let who = match call {
        Some(call) => format!("{} ended the program with exit", named(call)),
        None => format!(
            "a library ended the program with exit, outside of any plugin's call{}",
            meanwhile()
        ),
    };
    format!(
        "error: {who}; next: report this line to the plugin's author; a training run continues from its last checkpoint with \
         --resume, once the plugin no longer exits"
    )
}

/// ``plugin `nf4` (/plugins/libnf4.so) in encode``.
fn named(call: Call) -> String {
    let file = call.site().file();
    let file = file.map_or_else(|| "linked".to_owned(), |file| file.display().to_string());
    let (component, callback) = (call.site().component(), call.callback());
    format!("plugin `{component}` ({file}) in {callback}")
}

/// Pending calls of other threads: an `exit` on a library's own thread may belong to one of them.
fn meanwhile() -> String {
    let pending = call_site::pending();
    let calls: Vec<String> = pending.iter().map(|one| named(one.call)).collect();
    match calls.as_slice() {
        [] => String::new(),
        calls => format!("; meanwhile: {}", calls.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_line_names_the_calls_of_the_thread_or_of_other_threads() {
        let file = Path::new("/plugins/libnf4.so");
        let _mark = call_site::CallSite::new("nf4", Some(file)).enter("decode");
        let call = call_site::current().expect("just entered");
        let call_text = "plugin `nf4` (/plugins/libnf4.so) in decode";
        let shown = line(Some(call));
        let expected = format!("error: {call_text} ended the program with exit; next: ");
        assert!(shown.starts_with(&expected), "{shown}");
        let shown = line(None);
        assert!(
            shown.contains("; meanwhile: ") && shown.contains(call_text),
            "{shown}"
        );
    }
}
