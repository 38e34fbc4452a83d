//! A signal raised by a fault -> a last line that names the plugin's call and the addresses on the
//! stack. Ends the process with the exit code of plugins.
#![allow(unsafe_code)] // Signal handlers and their stack.

mod modules;
mod trace;

use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use espalier_registry::library;
use espalier_system::signal;
use espalier_trainer::call_site::{self, Call};
use libc::{c_int, iovec};

use crate::display;
use crate::exits::PLUGIN;

/// The signals that a fault raises.
const SIGNALS: [c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
];

/// Bytes of the main thread's stack for handlers.
const STACK: usize = 64 << 10;

/// Most pieces of a line.
const PIECES: usize = 20;

/// Set while a partly drawn line may be on the terminal.
static ON_TERMINAL: AtomicBool = AtomicBool::new(false);

/// The first thread with a fault, which writes the last line, and its signal.
static REPORTER: AtomicI32 = AtomicI32::new(0);
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Set where the report itself caused a fault.
static FAILED: AtomicBool = AtomicBool::new(false);

/// From now on a fault inside a plugin's call ends the process with a line that names it. Threads
/// that Rust starts have a stack for handlers, so that stack overflows are reported, too.
pub fn watch() {
    ON_TERMINAL.store(io::stderr().is_terminal(), Ordering::Relaxed);
    trace::prepare();
    library::on_opened(modules::learn);
    give_stack();
    for number in SIGNALS {
        // SAFETY: the struct is plain data, and zeros are a valid value of it; `at_fault` is a
        // handler of one argument that calls only what is safe in handlers.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = at_fault as *const () as usize;
            // A fault of the handler itself calls it again.
            action.sa_flags = libc::SA_ONSTACK | libc::SA_NODEFER;
            libc::sigaction(number, &action, ptr::null_mut());
        }
    }
}

/// Gives the main thread a stack for handlers with room for two nested faults. The standard
/// library's stack has hardly room for the registers of two on a processor with wide ones.
fn give_stack() {
    // SAFETY: the struct is plain data; the stack is leaked, so that it lives as long as the
    // thread.
    unsafe {
        let stack = libc::stack_t {
            ss_sp: Box::leak(vec![0u8; STACK].into_boxed_slice())
                .as_mut_ptr()
                .cast(),
            ss_flags: 0,
            ss_size: STACK,
        };
        libc::sigaltstack(&stack, ptr::null_mut());
    }
}

/// The handler: no allocation, no lock, one write to standard error and one to the log.
extern "C" fn at_fault(number: c_int) {
    // SAFETY: it takes nothing and cannot fail.
    let thread = unsafe { libc::gettid() };
    let reporter = REPORTER.compare_exchange(0, thread, Ordering::SeqCst, Ordering::SeqCst);
    match reporter {
        Ok(_) => {
            SIGNAL.store(number, Ordering::SeqCst);
            trace::take();
            report(number);
        }
        // The stack is so damaged that the walk did not reach its end.
        Err(reporter) if reporter == thread && !FAILED.swap(true, Ordering::SeqCst) => {
            report(SIGNAL.load(Ordering::SeqCst));
        }
        Err(reporter) if reporter == thread => end_by(number),
        Err(_) => loop {
            // SAFETY: it takes nothing and waits; the thread that was first ends the process.
            unsafe { libc::pause() };
        },
    }
}

/// Prints what happened and ends the process.
fn report(number: c_int) {
    let mut line = Line::new();
    let mut digits = [0; 3];
    match call_site::current() {
        Some(call) => {
            line.blame(call, number, &mut digits);
            line.trace();
            line.write();
            // SAFETY: ends the process at once and runs none of its exit handlers.
            unsafe { libc::_exit(PLUGIN) }
        }
        None => {
            line.own_up(number, &mut digits);
            line.trace();
            line.write();
            end_by(number);
        }
    }
}

/// Ends the process by the signal, as without a handler.
fn end_by(number: c_int) {
    // SAFETY: what the signal does by default is restored, and it is sent again.
    unsafe {
        libc::signal(number, libc::SIG_DFL);
        libc::raise(number);
    }
}

/// A line in pieces that are written in one call.
struct Line<'a> {
    pieces: [&'a [u8]; PIECES],
    count: usize,
}

impl<'a> Line<'a> {
    fn new() -> Self {
        let mut line = Line {
            pieces: [&[]; PIECES],
            count: 0,
        };
        if ON_TERMINAL.load(Ordering::Relaxed) {
            line.push("\n");
        }
        line
    }

    fn push(&mut self, piece: &'a str) {
        self.push_bytes(piece.as_bytes());
    }

    fn push_bytes(&mut self, piece: &'a [u8]) {
        if let Some(slot) = self.pieces.get_mut(self.count) {
            *slot = piece;
            self.count += 1;
        }
    }

    fn blame(&mut self, call: Call, number: c_int, digits: &'a mut [u8; 3]) {
        self.push("error: plugin `");
        self.push(call.site().component());
        self.push("` (");
        match call.site().file() {
            Some(file) => self.push_bytes(file.as_os_str().as_bytes()),
            None => self.push("linked"),
        }
        self.push(") crashed with ");
        self.signal(number, digits);
        self.push(" in ");
        self.push(call.callback());
        self.push(
            "; next: report this line to the plugin's author; a training run continues from its last \
             checkpoint with --resume, once the plugin no longer crashes",
        );
    }

    fn own_up(&mut self, number: c_int, digits: &'a mut [u8; 3]) {
        self.push("error: the program crashed with ");
        self.signal(number, digits);
        self.push(
            ", outside of any plugin's call; next: report this line; a training run continues from its \
             last checkpoint with --resume",
        );
    }

    /// Adds the stack's addresses: `cargo xtask symbolize` turns them into source lines.
    fn trace(&mut self) {
        let trace = trace::text();
        if !trace.is_empty() {
            self.push("; trace:");
            self.push_bytes(trace);
        }
        self.push("\n");
    }

    fn signal(&mut self, number: c_int, digits: &'a mut [u8; 3]) {
        self.push("signal ");
        self.push_bytes(decimal(number, digits));
        self.push(" (");
        self.push(signal::name(number));
        self.push(")");
    }

    fn write(&self) {
        let mut pieces = [iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        }; PIECES];
        for (piece, text) in pieces.iter_mut().zip(&self.pieces[..self.count]) {
            piece.iov_base = text.as_ptr().cast_mut().cast();
            piece.iov_len = text.len();
        }
        // A file that cannot be written does not prevent the write to the other.
        for file in [Some(libc::STDERR_FILENO), display::log_descriptor()] {
            let Some(file) = file else { continue };
            // SAFETY: `count` pieces are set, each a slice that outlives the call, which only reads
            // them.
            unsafe { libc::writev(file, pieces.as_ptr(), self.count as c_int) };
        }
    }
}

/// The digits of a signal's number, which is below 1000.
fn decimal(number: c_int, digits: &mut [u8; 3]) -> &[u8] {
    let mut rest = number.unsigned_abs();
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 || at == 0 {
            return &digits[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written<'a>(fill: impl FnOnce(&mut Line<'a>)) -> String {
        let mut line = Line::new();
        fill(&mut line);
        String::from_utf8_lossy(&line.pieces[..line.count].concat()).into_owned()
    }

    #[test]
    fn the_line_names_plugin_file_signal_and_callback() {
        let file = std::path::Path::new("/plugins/libnf4.so");
        let site = call_site::CallSite::new("nf4", Some(file));
        let _mark = site.enter("decode");
        let call = call_site::current().expect("just entered");
        let mut digits = [0; 3];
        let line = written(|line| line.blame(call, 11, &mut digits));
        let expected = "error: plugin `nf4` (/plugins/libnf4.so) crashed with signal 11 (SIGSEGV) in decode; next: ";
        assert!(line.starts_with(expected), "{line}");
        assert!(line.ends_with(" no longer crashes"), "{line}");
    }

    #[test]
    fn numbers_are_written_in_full() {
        for number in [0, 7, 11, 128] {
            assert_eq!(decimal(number, &mut [0; 3]), number.to_string().as_bytes());
        }
    }
}
