//! What the device asks of its driver, and what it tells of a failure.

use std::ptr::NonNull;

use espalier_interface::{
    ErrorCode, Event, HostMemory, Kernels, Memory, MemoryKind, Stream, Streams,
};

use super::separate::Call;
use super::{device, launch, ones, range};
use espalier_driver_device::Route;

const COMPUTE: Stream = Stream(0);

#[test]
fn a_launch_enters_its_stream_and_waits_for_nothing() {
    let (device, watch) = device(None);
    let side = device.stream().unwrap();
    let kernel = ones(&device);
    let buffer = device.alloc(64, MemoryKind::DEVICE).unwrap();
    launch(&device, kernel, buffer, side).unwrap();
    launch(&device, kernel, buffer, COMPUTE).unwrap();
    assert_eq!(watch.calls(), [Call::Enter(1), Call::Enter(0)]);
    let mut found = [0; 64];
    device
        .download(range(buffer, 64), &mut found, side)
        .unwrap();
    assert_eq!(found[..4], 1f32.to_le_bytes());
    let calls = [Call::Copy(Route::ToHost, 1), Call::Synchronize(1)];
    assert_eq!(watch.calls(), calls);
}

#[test]
fn events_go_to_the_driver_and_end_when_they_are_freed() {
    let (device, watch) = device(None);
    let side = device.stream().unwrap();
    let event = device.record(side).unwrap();
    device.wait(COMPUTE, event).unwrap();
    assert!(device.query(event).unwrap());
    device.free_event(event).unwrap();
    let expected = [
        Call::Record(1, 1),
        Call::Wait(0, 1),
        Call::Query(1),
        Call::FreeEvent(1),
    ];
    assert_eq!(watch.calls(), expected);
    let gone = format!("event {} does not exist or was freed", event.0);
    for error in [
        device.wait(side, event).unwrap_err(),
        device.query(event).unwrap_err(),
        device.free_event(event).unwrap_err(),
    ] {
        assert_eq!((error.code, &error.message), (ErrorCode::INVALID, &gone));
    }
    assert!(device.wait(Stream(2), Event(9)).is_err());
    assert!(watch.calls().is_empty());
}

/// Copies with pinned memory are put on the stream. Those with memory that the driver did not pin
/// are done alone: it would be read at the call, before the stream's work.
#[test]
fn copies_with_host_memory_keep_the_order_of_the_stream() {
    let (device, watch) = device(None);
    let own = device.alloc(64, MemoryKind::DEVICE).unwrap();
    let pinned = device.alloc(64, MemoryKind::PINNED).unwrap();
    let mut memory = vec![7u8; 256];
    let begin = memory.as_ptr().align_offset(64);
    let start = NonNull::from(&mut memory[begin..]).cast();
    // SAFETY: it is aligned, has its tail, and outlives the device.
    let lent = device
        .import(unsafe { HostMemory::new(start, 64) })
        .unwrap();
    let [own, pinned, lent] = [own, pinned, lent].map(|buffer| range(buffer, 64));
    let copied = |from, to| {
        device.copy(from, to, COMPUTE).unwrap();
        watch.calls()
    };
    let alone = |route| {
        [
            Call::Synchronize(0),
            Call::Copy(route, 0),
            Call::Synchronize(0),
        ]
    };
    assert_eq!(copied(lent, own), alone(Route::ToDevice));
    assert_eq!(copied(own, lent), alone(Route::ToHost));
    assert_eq!(copied(own, own), [Call::Copy(Route::Within, 0)]);
    assert_eq!(copied(own, pinned), [Call::Copy(Route::ToHost, 0)]);
    assert_eq!(copied(pinned, own), [Call::Copy(Route::ToDevice, 0)]);
    assert_eq!(copied(pinned, lent), [Call::Synchronize(0)]);
    device.upload(&[1; 64], own, COMPUTE).unwrap();
    assert_eq!(watch.calls(), [Call::Upload(0)]);
    device.upload(&[2; 64], pinned, COMPUTE).unwrap();
    assert_eq!(watch.calls(), [Call::Synchronize(0)]);
    let address = device.host_address(pinned).expect("pinned memory");
    // SAFETY: the buffer is the host's to read until it is freed.
    assert_eq!(unsafe { address.read() }, 2);
    assert!(device.host_address(own).is_none() && device.host_address(lent).is_none());
    assert!(device.native_address(own).is_some() && device.native_address(pinned).is_none());
    assert_eq!(device.native_device(), Some(3));
}

#[test]
fn a_failure_that_is_told_later_names_the_launches_before_it() {
    let (device, watch) = device(None);
    let kernel = ones(&device);
    let buffer = device.alloc(64, MemoryKind::DEVICE).unwrap();
    launch(&device, kernel, buffer, COMPUTE).unwrap();
    let event = device.record(COMPUTE).unwrap();
    let lost = "CUDA: an illegal memory access was encountered";
    let expected = format!("{lost} (on stream 0, behind launches of `init`)");
    watch.known().failure = Some(lost);
    let error = device.query(event).unwrap_err();
    assert_eq!((error.code, &error.message), (ErrorCode::DEVICE, &expected));
    watch.known().failure = Some(lost);
    let error = device.synchronize(COMPUTE).unwrap_err();
    assert_eq!(error.message, expected);
    device.synchronize(COMPUTE).unwrap();
    watch.known().failure = Some(lost);
    let error = device.synchronize(COMPUTE).unwrap_err();
    assert_eq!(error.message, format!("{lost} (on stream 0)"));
}

#[test]
fn memory_that_there_is_not_is_refused_with_its_bytes() {
    let (device, watch) = device(Some(1000));
    watch.known().room = Some(500);
    let error = device.alloc(600, MemoryKind::DEVICE).unwrap_err();
    let expected = "a buffer of 600 bytes: the driver has no room";
    assert_eq!(
        (error.code, error.message.as_str()),
        (ErrorCode::OUT_OF_MEMORY, expected)
    );
    watch.known().room = None;
    let buffer = device.alloc(600, MemoryKind::DEVICE).unwrap();
    let error = device.alloc(401, MemoryKind::DEVICE).unwrap_err();
    assert_eq!(error.code, ErrorCode::OUT_OF_MEMORY);
    let expected = "a buffer of 401 bytes: only 400 bytes (400 B) of the 1000 B that \
                    backend.tch.device_memory gives are free";
    assert_eq!(error.message, expected);
    device.free(buffer).unwrap();
    device.alloc(1000, MemoryKind::DEVICE).expect("given back");
    let error = device.alloc(64, MemoryKind::MAPPED).unwrap_err();
    assert_eq!(error.code, ErrorCode::UNSUPPORTED);
    let error = device.alloc(u64::MAX, MemoryKind::PINNED).unwrap_err();
    assert_eq!(error.code, ErrorCode::OUT_OF_MEMORY);
}

#[test]
fn kernels_work_on_memory_of_the_device_alone() {
    let (device, _) = device(None);
    let kernel = ones(&device);
    let pinned = device.alloc(64, MemoryKind::PINNED).unwrap();
    let error = launch(&device, kernel, pinned, COMPUTE).unwrap_err();
    assert_eq!(error.code, ErrorCode::INVALID);
    assert!(error.message.contains("the host's memory"), "{error}");
    device.release(kernel).unwrap();
    assert!(device.release(kernel).is_err());
}

#[test]
fn a_device_that_is_closed_frees_all_and_waits_before() {
    let (device, watch) = device(None);
    for kind in [MemoryKind::DEVICE, MemoryKind::PINNED] {
        device.alloc(100, kind).unwrap();
    }
    device.stream().unwrap();
    device.record(COMPUTE).unwrap();
    assert_eq!(watch.live(), 2);
    drop(device);
    assert_eq!(watch.live(), 0);
    let expected = [
        Call::Record(0, 1),
        Call::Synchronize(0),
        Call::Synchronize(1),
        Call::FreeEvent(1),
    ];
    assert_eq!(watch.calls(), expected);
}
