//! Independent tasks -> the host's threads, each with a separate share of the workspace.
#![allow(unsafe_code)] // Disjoint shares of one workspace on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use espalier_interface::Services;

use super::Scalar;
use super::micro::LINE;
use crate::element::Element;
use crate::split::Parts;

/// Bytes of workspace that give `threads` threads `share` elements of `S` each, and all of them
/// `shared`.
pub(crate) fn bytes<S>(shared: usize, share: usize, threads: usize) -> usize {
    LINE + (padded::<S>(shared) + padded::<S>(share) * threads.max(1)) * size_of::<S>()
}

/// `share` rounded up to whole cache lines.
fn padded<S>(share: usize) -> usize {
    share.next_multiple_of(LINE / size_of::<S>())
}

/// The numbers of a workspace from its first whole cache line on, which hold any values.
pub(super) fn numbers<E: Element>(workspace: &mut [u8]) -> &mut [E] {
    let skip = workspace.as_ptr().align_offset(LINE).min(workspace.len());
    let memory = &mut workspace[skip..];
    let room = memory.len() / size_of::<E>();
    // SAFETY: aligned to a cache line, `room` elements long, and every bit pattern is a valid
    // number.
    unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), room) }
}

/// Threads' shares of a workspace.
pub(super) struct Slots<'a, S> {
    memory: &'a mut [S],
    share: usize,
    count: usize,
}

impl<'a, S: Scalar> Slots<'a, S> {
    /// `shared` elements for all, and the shares of `threads` threads or as many as have room.
    ///
    /// # Panics
    /// Where `workspace` has no room for one share.
    pub fn new(
        workspace: &'a mut [u8],
        shared: usize,
        share: usize,
        threads: usize,
    ) -> (&'a mut [S], Self) {
        let (shared, share) = (padded::<S>(shared), padded::<S>(share));
        let memory = numbers(workspace);
        let room = memory.len();
        let count = threads.min(room.saturating_sub(shared) / share.max(1));
        assert!(
            count > 0,
            "the workspace has {room} elements, a task needs {}",
            shared + share
        );
        let (shared, memory) = memory.split_at_mut(shared);
        (
            shared,
            Slots {
                memory,
                share,
                count,
            },
        )
    }

    /// Calls `body` once on each thread, with its share, which holds any values.
    pub fn run(self, services: &dyn Services, body: impl Fn(&mut [S]) + Sync) {
        let parts = Parts::new(self.memory);
        let run = |slot: usize| {
            // SAFETY: each slot is run once, and shares of different slots do not overlap.
            body(unsafe { parts.part(slot * self.share, self.share) });
        };
        match self.count {
            1 => run(0),
            count => services.parallel_for(count, &run),
        }
    }
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
    let sizes = [0, share];
    each_sharing(services, tasks, sizes, workspace, |task, _, share| {
        body(task, share);
    });
}

/// [`each`] with `shared` elements more, of any values, which all tasks of `body(task, shared,
/// share)` have in common.
///
/// # Panics
/// Where `workspace` has no room for them and one share.
pub(crate) fn each_sharing<S: Scalar>(
    services: &dyn Services,
    tasks: usize,
    [shared, share]: [usize; 2],
    workspace: &mut [u8],
    body: impl Fn(usize, &Parts<'_, S>, &mut [S]) + Sync,
) {
    if tasks == 0 {
        return;
    }
    let threads = services.threads().min(tasks);
    let (shared, slots) = Slots::<S>::new(workspace, shared, share, threads);
    let shared = Parts::new(shared);
    let next = AtomicUsize::new(0);
    slots.run(services, |share| {
        loop {
            let task = next.fetch_add(1, Ordering::Relaxed);
            if task >= tasks {
                return;
            }
            body(task, &shared, share);
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::matmul::threads::Threads;

    #[test]
    fn every_task_runs_once_in_a_separate_share() {
        let mut workspace = vec![0u8; bytes::<f32>(0, 10, 3)];
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
