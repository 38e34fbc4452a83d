//! The stream of this thread's launches.

use std::cell::Cell;
use std::ptr::null_mut;

use cudarc::driver::sys::CUstream;

thread_local! {
    static CURRENT: Cell<CUstream> = const { Cell::new(null_mut()) };
}

/// From now on the launches of this thread go to `stream`.
pub fn set_stream(stream: CUstream) {
    CURRENT.set(stream);
}

/// The stream of this thread's launches.
pub fn stream() -> CUstream {
    CURRENT.get()
}
