//! What each order shows: a wait that is missing in one direction or the other.

use espalier_interface::{Device, Event, MemoryKind, Stream};
use serde_json::json;

use super::{COMPUTE, alloc, copy, device, in_order, launch, ones, racing, upload, value};

/// Which wait a program leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    None,
    /// The compute stream does not wait for the copy of its operand.
    OfCompute,
    /// The copy does not wait until its destination has been read.
    OfCopy,
}

/// Computes on one slot twice: a copy stream fills it with 1, the compute stream reads it, and the
/// same with 2. Returns what the compute stream has read.
fn slot_used_twice(device: &dyn Device, missing: Missing) -> [u8; 2] {
    let copies = device.stream().expect("a stream");
    let homes = [1, 2].map(|content| {
        let home = alloc(device, MemoryKind::PINNED);
        upload(device, content, home, copies);
        home
    });
    device.synchronize(copies).expect("uploads");
    let slot = alloc(device, MemoryKind::DEVICE);
    let results = [(); 2].map(|()| alloc(device, MemoryKind::DEVICE));
    for (home, result) in homes.into_iter().zip(results) {
        copy(device, home, slot, copies);
        if missing != Missing::OfCompute {
            let filled = device.record(copies).expect("an event");
            device.wait(COMPUTE, filled).expect("a wait");
        }
        copy(device, slot, result, COMPUTE);
        if missing != Missing::OfCopy {
            let read = device.record(COMPUTE).expect("an event");
            device.wait(copies, read).expect("a wait");
        }
    }
    results.map(|result| value(device, result, COMPUTE))
}

#[test]
fn with_all_waits_every_order_gives_the_same_result() {
    for order in ["late", "early"] {
        let found = slot_used_twice(&*in_order(order), Missing::None);
        assert_eq!(found, [1, 2], "{order}");
    }
    for seed in 0..100 {
        let device = device(&[("order", json!("mixed")), ("seed", json!(seed))]);
        let found = slot_used_twice(&*device, Missing::None);
        assert_eq!(found, [1, 2], "seed {seed}");
    }
}

/// The orders differ: each shows a fault that the other one hides.
#[test]
fn late_shows_a_missing_wait_for_a_copy_and_early_one_for_the_compute_stream() {
    let found = |order, missing| slot_used_twice(&*racing(order), missing);
    assert_eq!(found("late", Missing::OfCompute), [0, 0]);
    assert_eq!(found("early", Missing::OfCopy), [2, 2]);
    // Without the wait of the copy stream, `late` still runs the copies one by one, as needed.
    assert_eq!(found("late", Missing::OfCopy), [1, 2]);
}

#[test]
fn some_seed_of_mixed_shows_each_missing_wait() {
    let shown = |missing| {
        let wrong = |seed: &u64| {
            let device = device(&[
                ("order", json!("mixed")),
                ("seed", json!(seed)),
                ("races", json!("count")),
            ]);
            slot_used_twice(&*device, missing) != [1, 2]
        };
        (0..20u64).filter(wrong).count()
    };
    for missing in [Missing::OfCompute, Missing::OfCopy] {
        let count = shown(missing);
        assert!((1..20).contains(&count), "{missing:?}: {count} of 20");
    }
}

#[test]
fn in_the_order_late_only_what_is_waited_for_runs() {
    let device = in_order("late");
    let side = device.stream().expect("a stream");
    let pinned = alloc(&*device, MemoryKind::PINNED);
    let address = device.host_address(super::whole(pinned));
    let address = address.expect("the host reaches pinned memory");
    // SAFETY: the buffer lives, and no task runs now.
    let now = || unsafe { address.as_ptr().read_volatile() };
    upload(&*device, 5, pinned, side);
    device.synchronize(COMPUTE).expect("nothing to do");
    assert_eq!(now(), 0);
    device.synchronize(side).expect("an upload");
    assert_eq!(now(), 5);
}

#[test]
fn in_the_order_early_a_side_stream_runs_at_once_and_the_compute_stream_when_waited_for() {
    let device = racing("early");
    let side = device.stream().expect("a stream");
    let pinned = alloc(&*device, MemoryKind::PINNED);
    let address = device.host_address(super::whole(pinned));
    let address = address.expect("the host reaches pinned memory");
    // SAFETY: the buffer lives, and no task runs now.
    let now = || unsafe { address.as_ptr().read_volatile() };
    upload(&*device, 5, pinned, side);
    assert_eq!(now(), 5);
    upload(&*device, 6, pinned, COMPUTE);
    assert_eq!(now(), 5);
    device.synchronize(side).expect("all else runs first");
    assert_eq!(now(), 5, "nothing was on the stream that is waited for");
    device.synchronize(COMPUTE).expect("an upload");
    assert_eq!(now(), 6);
}

#[test]
fn operands_are_read_when_a_task_runs() {
    let device = racing("late");
    let [from, to] = [(); 2].map(|()| alloc(&*device, MemoryKind::DEVICE));
    let side = device.stream().expect("a stream");
    upload(&*device, 3, from, COMPUTE);
    let kernel = ones(&*device, 16);
    launch(&*device, kernel, from, side);
    copy(&*device, from, to, COMPUTE);
    // The launch was put second and runs first.
    device.synchronize(side).expect("a launch");
    assert_eq!(value(&*device, to, COMPUTE), 3, "the upload came last");
}

#[test]
fn a_wait_reaches_through_other_streams() {
    for order in ["late", "early", "mixed"] {
        let device = in_order(order);
        let buffers = [(); 4].map(|()| alloc(&*device, MemoryKind::DEVICE));
        let streams: Vec<Stream> = (0..3).map(|_| device.stream().expect("a stream")).collect();
        upload(&*device, 9, buffers[0], streams[0]);
        for hop in 0..3 {
            let stream = streams.get(hop + 1).copied().unwrap_or(COMPUTE);
            let before = device.record(streams[hop]).expect("an event");
            device.wait(stream, before).expect("a wait");
            copy(&*device, buffers[hop], buffers[hop + 1], stream);
        }
        assert_eq!(value(&*device, buffers[3], COMPUTE), 9, "{order}");
    }
}

/// Ten thousand waits back and forth need no stack.
#[test]
fn a_long_chain_of_waits_is_run() {
    let device = in_order("late");
    let side = device.stream().expect("a stream");
    let [a, b] = [(); 2].map(|()| alloc(&*device, MemoryKind::DEVICE));
    upload(&*device, 4, a, COMPUTE);
    for _ in 0..5000 {
        for (from, to) in [(COMPUTE, side), (side, COMPUTE)] {
            let event = device.record(from).expect("an event");
            device.wait(to, event).expect("a wait");
        }
        copy(&*device, a, b, side);
    }
    assert_eq!(value(&*device, b, side), 4);
}

#[test]
fn streams_and_events_that_do_not_exist_are_refused() {
    let device = in_order("late");
    let side = device.stream().expect("a stream");
    let event = device.record(COMPUTE).expect("an event");
    let unknown = Stream(side.0 + 1);
    for refused in [
        device.record(unknown).map(drop),
        device.wait(unknown, event),
        device.synchronize(unknown),
    ] {
        assert_eq!(
            refused.expect_err("no such stream").message,
            "stream 2 does not exist"
        );
    }
    let error = device.wait(side, Event(event.0 + 1));
    let error = error.expect_err("no such event");
    assert_eq!(error.message, "event 2 does not exist");
}
