//! An allocation -> separate pages of memory, with an inaccessible page beside it: a kernel that
//! reads or writes past its slices ends the tests.
//!
//! A slice can touch one guard only. So the tests run twice: with guards after allocations and, in
//! a second process, with guards before them.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU8, Ordering};

/// Set where guards are before allocations.
const BEFORE: &std::ffi::CStr = c"ESPALIER_GUARDS_BEFORE";
/// Smaller allocations are the test harness's.
const FEWEST_BYTES: usize = 32;

struct Guarded;

#[global_allocator]
static GUARDED: Guarded = Guarded;

// SAFETY: each allocation is either the system's or separate pages, and is freed by its own
// allocator: the layout decides which.
unsafe impl GlobalAlloc for Guarded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match Pages::of(layout) {
            // SAFETY: the caller's layout.
            None => unsafe { System.alloc(layout) },
            Some(pages) => pages.map(),
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        match Pages::of(layout) {
            // SAFETY: the caller's pointer, which came from there.
            None => unsafe { System.dealloc(pointer, layout) },
            // SAFETY: as above.
            Some(pages) => unsafe { pages.unmap(pointer) },
        }
    }
}

/// The place of an allocation in its pages.
#[derive(Clone, Copy)]
struct Pages {
    /// A guard, the allocation, a guard.
    bytes: usize,
    /// From the start of the first guard.
    offset: usize,
}

impl Pages {
    const SIZE: usize = 4096;

    fn of(layout: Layout) -> Option<Self> {
        if layout.size() < FEWEST_BYTES || layout.align() > Self::SIZE {
            return None;
        }
        let held = layout.size().next_multiple_of(Self::SIZE);
        let gap = if is_before() {
            0
        } else {
            // Bytes after the end that alignment leaves are not guarded.
            (held - layout.size()) & !(layout.align() - 1)
        };
        Some(Pages {
            bytes: held + 2 * Self::SIZE,
            offset: Self::SIZE + gap,
        })
    }

    fn map(self) -> *mut u8 {
        // SAFETY: new pages that are used nowhere else, of which all but the first and the last
        // become usable.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let first = libc::mmap(null_mut(), self.bytes, libc::PROT_NONE, flags, -1, 0);
            if first == libc::MAP_FAILED {
                return null_mut();
            }
            let first = first.cast::<u8>();
            let held = self.bytes - 2 * Self::SIZE;
            let usable = libc::PROT_READ | libc::PROT_WRITE;
            if libc::mprotect(first.add(Self::SIZE).cast(), held, usable) != 0 {
                libc::munmap(first.cast(), self.bytes);
                return null_mut();
            }
            first.add(self.offset)
        }
    }

    /// # Safety
    /// `pointer` was given by [`Self::map`] of the same pages.
    unsafe fn unmap(self, pointer: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { libc::munmap(pointer.sub(self.offset).cast(), self.bytes) };
    }
}

/// Whether guards are before allocations, in this process from its first allocation on.
fn is_before() -> bool {
    const UNKNOWN: u8 = 2;
    static BEFORE_THEM: AtomicU8 = AtomicU8::new(UNKNOWN);
    let known = BEFORE_THEM.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known == 1;
    }
    // SAFETY: a string with an end, and no thread changes the environment. `std::env` would
    // allocate.
    let is_set = unsafe { !libc::getenv(BEFORE.as_ptr()).is_null() };
    BEFORE_THEM.store(u8::from(is_set), Ordering::Relaxed);
    is_set
}

#[test]
fn all_tests_pass_with_guards_before_allocations() {
    if is_before() {
        return;
    }
    let tests = std::env::current_exe().expect("this program");
    let name = BEFORE.to_str().expect("ASCII");
    let output = std::process::Command::new(tests).env(name, "1").output();
    let output = output.expect("the tests start");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {printed}", output.status);
    assert!(printed.contains("test result: ok"), "{printed}");
}

/// A program that reads one byte past an allocation ends by the signal of a segmentation fault.
#[test]
fn a_byte_past_an_allocation_ends_the_program() {
    const CHILD: &str = "ESPALIER_GUARDS_TOUCH";
    const NAME: &str = "guard_pages::a_byte_past_an_allocation_ends_the_program";
    let bytes = std::hint::black_box(vec![0u8; 100]);
    if std::env::var_os(CHILD).is_some() {
        let past: isize = if is_before() { -1 } else { 100 };
        // SAFETY: none; this read must fault.
        let read = unsafe { bytes.as_ptr().offset(past).read_volatile() };
        unreachable!("read {read}");
    }
    let tests = std::env::current_exe().expect("this program");
    let mut child = std::process::Command::new(tests);
    let child = child.args(["--exact", NAME]).env(CHILD, "1");
    let status = child.output().expect("the test starts").status;
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    assert_eq!(signal, Some(libc::SIGSEGV), "{status}");
}
