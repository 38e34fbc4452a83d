//! Tasks that nothing orders are found in whatever order they run; what orders them is not
//! reported.

use espalier_interface::{Device, ErrorCode, Event, MemoryKind, Stream};
use serde_json::{Value as Json, json};

use super::{COMPUTE, alloc, copy, device, in_order, launch, ones, upload, value};

/// What orders a copy on a second stream behind an upload to its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Nothing,
    Event,
    /// Through a third stream.
    Chain,
    HostSynchronizes,
    HostQueries,
}

/// Uploads on the compute stream, copies on another one; the error of the last wait.
fn uploads_and_copies(device: &dyn Device, order: Order) -> Option<String> {
    let [side, third] = [(); 2].map(|()| device.stream().expect("a stream"));
    let [from, to] = [(); 2].map(|()| alloc(device, MemoryKind::DEVICE));
    upload(device, 1, from, COMPUTE);
    let event = device.record(COMPUTE).expect("an event");
    let wait = |stream: Stream, event: Event| device.wait(stream, event).expect("a wait");
    match order {
        Order::Nothing => {}
        Order::Event => wait(side, event),
        Order::Chain => {
            wait(third, event);
            wait(side, device.record(third).expect("an event"));
        }
        Order::HostSynchronizes => device.synchronize(COMPUTE).expect("an upload"),
        Order::HostQueries => while !device.query(event).expect("an event") {},
    }
    copy(device, from, to, side);
    let error = device.synchronize(side).err()?;
    assert_eq!(error.code, ErrorCode::DEVICE);
    Some(error.message)
}

#[test]
fn two_tasks_race_unless_a_stream_an_event_or_the_host_orders_them() {
    for order in ["late", "early", "mixed"] {
        let found = |by| uploads_and_copies(&*in_order(order), by);
        let race = found(Order::Nothing).expect("a race");
        assert!(
            race.starts_with(
                "race: upload (task 1 of stream 0) and copy (task 1 of stream 1) use bytes 0 to 64"
            ),
            "{race}"
        );
        for by in [
            Order::Event,
            Order::Chain,
            Order::HostSynchronizes,
            Order::HostQueries,
        ] {
            assert_eq!(found(by), None, "{order}, {by:?}");
        }
    }
}

#[test]
fn readers_do_not_race_and_writers_behind_them_do() {
    let device = in_order("late");
    let side = device.stream().expect("a stream");
    let [from, one, two] = [(); 3].map(|()| alloc(&*device, MemoryKind::DEVICE));
    copy(&*device, from, one, COMPUTE);
    copy(&*device, from, two, side);
    device.synchronize(COMPUTE).expect("both only read");
    let kernel = ones(&*device, 16);
    launch(&*device, kernel, from, COMPUTE);
    let error = device.synchronize(COMPUTE).expect_err("a reader is queued");
    assert!(
        error
            .message
            .contains("copy (task 1 of stream 1) and launch of `init` (task 2 of stream 0)"),
        "{error}"
    );
}

#[test]
fn a_download_and_a_free_race_with_what_the_host_has_not_waited_for() {
    let device = in_order("early");
    let side = device.stream().expect("a stream");
    let buffer = alloc(&*device, MemoryKind::DEVICE);
    upload(&*device, 1, buffer, side);
    let mut bytes = [0; 64];
    let read = device.download(super::whole(buffer), &mut bytes, COMPUTE);
    let error = read.expect_err("the upload is on another stream");
    assert!(error.message.contains("and download (task 1"), "{error}");
    upload(&*device, 2, buffer, side);
    device.free(buffer).expect("it has run already");
    let error = device.synchronize(COMPUTE).expect_err("nobody waited");
    assert!(error.message.contains("and the host's `free`"), "{error}");
}

#[test]
fn races_can_be_counted_only() {
    let device = device(&[("races", json!("count"))]);
    assert_eq!(uploads_and_copies(&*device, Order::Nothing), None);
}

/// The lines for a program in which one pair of calls is needed and one is not.
#[test]
fn each_call_that_orders_streams_is_listed_with_the_race_without_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("orderings.jsonl");
    let device = device(&[("orderings", json!(path))]);
    let side = device.stream().expect("a stream");
    let [from, to] = [(); 2].map(|()| alloc(&*device, MemoryKind::DEVICE));
    upload(&*device, 1, from, COMPUTE);
    device.record(COMPUTE).expect("an event for nobody");
    for _ in 0..2 {
        let event = device.record(COMPUTE).expect("an event");
        device.wait(side, event).expect("a wait");
    }
    copy(&*device, from, to, side);
    let event = device.record(COMPUTE).expect("an event");
    device.wait(side, event).expect("a wait");
    assert_eq!(value(&*device, to, side), 1);
    drop(device);
    let text = std::fs::read_to_string(path).expect("lines");
    let lines: Vec<Json> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let shown = lines.iter().map(|line| {
        let call = line["call"].as_str().expect("a name").to_owned();
        (
            call,
            line["number"].as_u64().expect("a number"),
            line["race"].is_string(),
        )
    });
    let shown: Vec<_> = shown.collect();
    let expected = [
        ("record", 2),
        ("wait", 1),
        ("record", 3),
        ("wait", 2),
        ("record", 4),
        ("wait", 3),
    ];
    // The two before the copy stand for each other, and nothing follows the last.
    let expected = expected.map(|(call, number)| (call.to_owned(), number, false));
    assert_eq!(shown, expected);
}

#[test]
fn the_only_wait_between_two_tasks_is_needed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("orderings.jsonl");
    let device = device(&[("orderings", json!(path))]);
    assert_eq!(uploads_and_copies(&*device, Order::Chain), None);
    drop(device);
    let text = std::fs::read_to_string(path).expect("lines");
    assert_eq!(text.lines().count(), 4, "{text}");
    for line in text.lines() {
        let line: Json = serde_json::from_str(line).expect("JSON");
        let race = line["race"].as_str().expect("a race without it");
        assert!(race.contains("upload (task 1 of stream 0)"), "{line}");
        assert!(race.contains("copy (task 1 of stream"), "{line}");
    }
}
