//! Independent tasks -> the host's threads, each with a separate share of the workspace.
#![allow(unsafe_code)] // Disjoint shares of one workspace on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use espalier_interface::Services;

use super::Scalar;
use crate::split::Parts;

/// Bytes of a cache line, to which shares are aligned.
const LINE: usize = 64;

/// Bytes of workspace with which [`each`] gives `threads` threads `share` elements of `S` each.
pub(crate) fn bytes<S>(share: usize, threads: usize) -> usize {
    LINE + padded::<S>(share) * size_of::<S>() * threads.max(1)
}

/// `share` rounded up to whole cache lines.
fn padded<S>(share: usize) -> usize {
    share.next_multiple_of(LINE / size_of::<S>())
}

/// Calls `body(task, share)` for every task below `tasks`, with `share` elements of scratch memory.
///
/// Free threads take the next task. A task's result must not depend on its thread nor on the number
/// of threads; shares hold any values when a task starts.
///
/// # Panics
/// Where `workspace` has no room for one share.
pub(crate) fn each<S: Scalar>(
    services: &dyn Services,
    tasks: usize,
    share: usize,
    workspace: &mut [u8],
    body: impl Fn(usize, &mut [S]) + Sync,
) {
    if tasks == 0 {
        return;
    }
    let share = padded::<S>(share);
    let skip = workspace.as_ptr().align_offset(LINE).min(workspace.len());
    let memory = &mut workspace[skip..];
    let room = memory.len() / size_of::<S>();
    let slots = services.threads().min(tasks).min(room / share);
    assert!(
        slots > 0,
        "the workspace has {room} elements, a task needs {share}"
    );
    // SAFETY: aligned to a cache line, `room` elements long, and every bit pattern is a valid
    // number.
    let memory = unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<S>(), room) };
    let parts = Parts::new(memory);
    let next = AtomicUsize::new(0);
    let run = |slot: usize| {
        // SAFETY: each slot is run once, and shares of different slots do not overlap.
        let share = unsafe { parts.part(slot * share, share) };
        loop {
            let task = next.fetch_add(1, Ordering::Relaxed);
            if task >= tasks {
                return;
            }
            body(task, share);
        }
    };
    match slots {
        1 => run(0),
        _ => services.parallel_for(slots, &run),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::matmul::threads::Threads;

    #[test]
    fn every_task_runs_once_in_a_separate_share() {
        let mut workspace = vec![0u8; bytes::<f32>(10, 3)];
        let sum = AtomicU64::new(0);
        each::<f32>(&Threads(3), 1000, 10, &mut workspace[1..], |task, share| {
            assert!(share.len() >= 10 && share.as_ptr().addr() % LINE == 0);
            share.fill(task as f32);
            std::thread::yield_now();
            assert!(share.iter().all(|&x| x == task as f32));
            sum.fetch_add(1 + task as u64, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 500_500);
    }
}
