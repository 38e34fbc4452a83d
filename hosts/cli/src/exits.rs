//! A call of `exit` that is not this program's own -> a last line that names the plugin's call it
//! was made in, and the exit code of plugins: a library that ends the program in mid-work must not
//! look like work that was done.
#![allow(unsafe_code)] // What the system calls at the end of a program, and the end itself.

use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use espalier_trainer::call_site::{self, Call};
use libc::c_int;

use crate::display;

/// Exit code of a plugin's fault.
pub const PLUGIN: c_int = 5;

/// Set once the program itself comes to its end.
static OVER: AtomicBool = AtomicBool::new(false);

/// The process that is watched: what a library forks off ends as it likes.
static WATCHED: AtomicU32 = AtomicU32::new(0);

/// The program is at work until this is dropped.
pub struct AtWork(());

/// From now on an `exit` that comes before the program's own end is told of, and ends it with the
/// exit code of plugins. `_exit`, which runs nothing, cannot be seen from within.
pub fn watch() -> AtWork {
    WATCHED.store(process::id(), Ordering::SeqCst);
    // SAFETY: the function is part of the program, so it is there at the end. Where the system
    // takes no more of them, nothing is watched.
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
    // SAFETY: ends the process at once, without running anything of it.
    unsafe { libc::_exit(PLUGIN) }
}

/// The last line, where `call` is what the thread was in.
fn line(call: Option<Call>) -> String {
    let who = match call {
        Some(call) => format!("{} ended the program with exit", named(call)),
        None => format!(
            "a library ended the program with exit, outside of any plugin's call{}",
            meanwhile()
        ),
    };
    format!(
        "error: {who}; next: report this line to the plugin's author; a training run goes on from its last checkpoint with \
         --resume, once what made the plugin do so is gone"
    )
}

/// ``plugin `nf4` (/plugins/libnf4.so) in encode``.
fn named(call: Call) -> String {
    let file = call.site().file();
    let file = file.map_or_else(|| "linked".to_owned(), |file| file.display().to_string());
    let (component, callback) = (call.site().component(), call.callback());
    format!("plugin `{component}` ({file}) in {callback}")
}

/// What other threads were in: an `exit` on a thread of a library's own may be part of that.
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
    fn the_line_names_the_call_of_the_thread_or_those_of_others() {
        let file = Path::new("/plugins/libnf4.so");
        let _mark = call_site::CallSite::new("nf4", Some(file)).enter("decode");
        let call = call_site::current().expect("just entered");
        let said = "plugin `nf4` (/plugins/libnf4.so) in decode";
        let told = line(Some(call));
        let expected = format!("error: {said} ended the program with exit; next: ");
        assert!(told.starts_with(&expected), "{told}");
        let told = line(None);
        assert!(
            told.contains("; meanwhile: ") && told.contains(said),
            "{told}"
        );
    }
}
