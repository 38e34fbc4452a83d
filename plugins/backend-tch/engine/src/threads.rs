//! Threads of libtorch: their number, and what libtorch keeps for each thread that calls it.

use std::cell::Cell;

thread_local! {
    /// The number of threads that was set on this thread; 0 before.
    static SET: Cell<i32> = const { Cell::new(0) };
}

/// Prepares this thread for calls of libtorch, once: its loops have `threads` threads, and it
/// records nothing for autograd.
///
/// OpenMP has a number of threads for each calling thread, so one call at the start of the process
/// would not do.
pub fn enter(threads: i32) {
    SET.with(|set| {
        if set.get() != threads {
            tch::set_num_threads(threads);
            // It would be switched on again where the guard ends.
            std::mem::forget(tch::no_grad_guard());
            set.set(threads);
        }
    });
}
