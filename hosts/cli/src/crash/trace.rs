//! The stack below a signal's handler -> the addresses of the interrupted thread, as text in a
//! static buffer.
#![allow(unsafe_code)] // The unwinder of the C compiler's library, and a buffer that one thread alone writes.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::modules;

/// Frames that are printed of each end of the stack.
const KEPT: usize = 16;
/// Most frames that are walked: those of an overflowed stack of 64 MiB.
const MOST: usize = 1 << 20;
/// Bytes of the text: room for a module's name and identity per frame.
const BYTES: usize = 2 * KEPT * 160;

/// Codes of the unwinder: continue, end of the stack, and stop.
const GO_ON: c_int = 0;
const END_OF_STACK: c_int = 5;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        frame: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIPInfo(context: *mut c_void, is_exact: *mut c_int) -> usize;
}

/// The frames of the thread that was interrupted.
struct Frames {
    first: [AtomicUsize; KEPT],
    /// The newest ones, in a ring.
    last: [AtomicUsize; KEPT],
    count: AtomicUsize,
    /// Set at the frame that the signal interrupted: frames before it are the handler's.
    interrupted: AtomicBool,
}

/// Whether the walk is free of locks on this system.
static WALKS: AtomicBool = AtomicBool::new(false);

static FRAMES: Frames = Frames {
    first: [const { AtomicUsize::new(0) }; KEPT],
    last: [const { AtomicUsize::new(0) }; KEPT],
    count: AtomicUsize::new(0),
    interrupted: AtomicBool::new(false),
};

/// The text of [`text`].
struct TextBuffer(UnsafeCell<[u8; BYTES]>);

// SAFETY: only the thread that reports the crash touches it.
unsafe impl Sync for TextBuffer {}

static TEXT: TextBuffer = TextBuffer(UnsafeCell::new([0; BYTES]));

/// Prepares a walk within a handler: no symbol lookup and no lock. C libraries before glibc 2.35
/// lock to find a frame's description, so that nothing is walked there.
pub fn prepare() {
    modules::learn();
    // SAFETY: the name ends in NUL.
    let lock_free = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
    if !lock_free.is_null() {
        WALKS.store(true, Ordering::Relaxed);
        take();
        FRAMES.clear();
    }
}

/// Walks the stack of this thread. On a damaged stack the walk may fault: frames found until then
/// are kept.
pub fn take() {
    if WALKS.load(Ordering::Relaxed) {
        // SAFETY: `frame` is called with each frame of this thread, and only reads it.
        unsafe { _Unwind_Backtrace(frame, std::ptr::null_mut()) };
    }
}

/// The frames found, as ` MODULE[BUILD ID]+0xADDRESS,+0xADDRESS MODULE...`. Only the reporting
/// thread may call it.
pub fn text() -> &'static [u8] {
    // SAFETY: this thread alone uses it; an earlier call of it, which a fault ended, does not
    // resume.
    let bytes = unsafe { &mut *TEXT.0.get() };
    let mut text = Text { bytes, count: 0 };
    let count = FRAMES.count.load(Ordering::Relaxed);
    let mut before = None;
    for number in 0..count.min(KEPT) {
        text.frame(FRAMES.first[number].load(Ordering::Relaxed), &mut before);
    }
    let rest = count.saturating_sub(KEPT);
    if rest > KEPT {
        text.push(b" ...");
        text.decimal(rest - KEPT);
        text.push(b" more...");
        before = None;
    }
    for number in count - rest.min(KEPT)..count {
        let address = FRAMES.last[number % KEPT].load(Ordering::Relaxed);
        text.frame(address, &mut before);
    }
    let Text { bytes, count } = text;
    &bytes[..count]
}

extern "C" fn frame(context: *mut c_void, _: *mut c_void) -> c_int {
    let mut is_exact = 0;
    // SAFETY: the unwinder's own context.
    let address = unsafe { _Unwind_GetIPInfo(context, &mut is_exact) };
    if is_exact != 0 && !FRAMES.interrupted.swap(true, Ordering::Relaxed) {
        FRAMES.count.store(0, Ordering::Relaxed);
    }
    if FRAMES.push(address) < MOST {
        GO_ON
    } else {
        END_OF_STACK
    }
}

impl Frames {
    /// Records a frame and returns the number of frames.
    fn push(&self, address: usize) -> usize {
        let number = self.count.load(Ordering::Relaxed);
        let slot = if number < KEPT {
            &self.first[number]
        } else {
            &self.last[number % KEPT]
        };
        slot.store(address, Ordering::Relaxed);
        self.count.store(number + 1, Ordering::Relaxed);
        number
    }

    fn clear(&self) {
        self.count.store(0, Ordering::Relaxed);
        self.interrupted.store(false, Ordering::Relaxed);
    }
}

/// Bytes that are formatted without allocation; those beyond the capacity are dropped.
struct Text {
    bytes: &'static mut [u8; BYTES],
    count: usize,
}

impl Text {
    fn push(&mut self, bytes: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.count..self.count + bytes.len()) {
            room.copy_from_slice(bytes);
            self.count += bytes.len();
        }
    }

    /// An address in its module; the module is named where it differs from the previous frame's.
    fn frame(&mut self, address: usize, before: &mut Option<*const modules::Module>) {
        let place = modules::place(address);
        let module = place.map(|(module, _)| std::ptr::from_ref(module));
        match place {
            Some(_) if module == *before => self.push(b","),
            Some((module, _)) => {
                self.push(b" ");
                self.push(&module.name);
                if !module.build_id.is_empty() {
                    self.push(b"[");
                    self.push(&module.build_id);
                    self.push(b"]");
                }
            }
            None => self.push(b" ?"),
        }
        *before = module;
        self.push(b"+0x");
        self.number(place.map_or(address, |(_, offset)| offset), 16);
    }

    fn decimal(&mut self, number: usize) {
        self.number(number, 10);
    }

    fn number(&mut self, mut rest: usize, base: usize) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b"0123456789abcdef"[rest % base];
            rest /= base;
            if rest == 0 {
                return self.push(&digits[at..]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, as the buffer of frames is shared.
    #[test]
    fn both_ends_of_a_stack_are_printed_by_module_and_address() {
        prepare();
        assert!(text().is_empty());
        take();
        let shown = String::from_utf8_lossy(text()).into_owned();
        let program = std::env::current_exe().expect("a file");
        let name = program.file_name().expect("a name").to_string_lossy();
        assert!(shown.contains(&format!(" {name}[")), "{shown}");
        assert!(shown.contains("]+0x"), "{shown}");
        FRAMES.clear();
        let own = prepare as *const () as usize;
        (0..3).for_each(|at| assert_eq!(FRAMES.push(own + at), at));
        let three = String::from_utf8_lossy(text()).into_owned();
        assert_eq!(three.matches(&*name).count(), 1, "{three}");
        assert_eq!(three.matches(",+0x").count(), 2, "{three}");
        (3..100).for_each(|at| assert_eq!(FRAMES.push(at), at));
        let many = String::from_utf8_lossy(text()).into_owned();
        assert!(many.starts_with(&three), "{many}");
        assert!(many.contains(" ?+0xf ...68 more... ?+0x54 "), "{many}");
        assert!(many.ends_with(" ?+0x63"), "{many}");
        FRAMES.clear();
    }
}
