//! Memory of the host: pageable, pinned and lent.

use std::ptr::NonNull;

use espalier_interface::{HostMemory, MemoryKind};
use serde_json::json;

use super::{BYTES, COMPUTE, alloc, copy, device, in_order, ones, upload, value, whole};

/// Memory that a host can lend, with its tail.
#[repr(align(64))]
struct Lendable([u8; BYTES as usize + 64]);

impl Lendable {
    fn lend(&mut self) -> HostMemory {
        // SAFETY: aligned, with a tail; the tests keep it until the device has run all copies.
        unsafe { HostMemory::new(NonNull::from(&mut self.0).cast(), BYTES) }
    }
}

#[test]
fn an_upload_takes_its_bytes_at_the_call() {
    let device = in_order("late");
    let to = alloc(&*device, MemoryKind::DEVICE);
    let mut bytes = vec![1; BYTES as usize];
    device
        .upload(&bytes, whole(to), COMPUTE)
        .expect("an upload");
    bytes.fill(2);
    assert_eq!(value(&*device, to, COMPUTE), 1);
}

#[test]
fn a_copy_reads_and_writes_lent_and_pinned_memory_when_it_runs() {
    let device = in_order("late");
    let mut lent = Box::new(Lendable([1; BYTES as usize + 64]));
    let buffer = device.import(lent.lend()).expect("lent");
    let pinned = alloc(&*device, MemoryKind::PINNED);
    let own = alloc(&*device, MemoryKind::DEVICE);
    copy(&*device, buffer, own, COMPUTE);
    copy(&*device, own, pinned, COMPUTE);
    lent.0[..BYTES as usize].fill(7);
    let address = device.host_address(whole(pinned)).expect("an address");
    // SAFETY: the buffer lives, and no task runs now.
    let pinned_now = || unsafe { address.as_ptr().read_volatile() };
    assert_eq!(pinned_now(), 0, "nothing has run");
    device.synchronize(COMPUTE).expect("copies");
    assert_eq!(pinned_now(), 7);
    upload(&*device, 8, buffer, COMPUTE);
    assert_eq!(lent.0[0], 7, "nothing has run");
    device.synchronize(COMPUTE).expect("an upload");
    assert_eq!(lent.0[0], 8);
    device.free(buffer).expect("not in use");
}

#[test]
fn only_pinned_memory_has_an_address_for_the_host() {
    let device = in_order("late");
    let mut lent = Box::new(Lendable([0; BYTES as usize + 64]));
    let lent = device.import(lent.lend()).expect("lent");
    let own = alloc(&*device, MemoryKind::DEVICE);
    let pinned = alloc(&*device, MemoryKind::PINNED);
    assert!(device.host_address(whole(own)).is_none());
    assert!(device.host_address(whole(lent)).is_none());
    assert!(device.host_address(whole(pinned)).is_some());
}

#[test]
fn kernels_on_memory_of_the_host_are_refused_where_the_option_says_so() {
    for (choice, accepted) in [("allow", true), ("refuse", false)] {
        let device = device(&[("host_operands", json!(choice))]);
        let pinned = alloc(&*device, MemoryKind::PINNED);
        let kernel = ones(&*device, 16);
        let launched = device.launch(&espalier_interface::Launch {
            kernel,
            stream: COMPUTE,
            ranges: &[whole(pinned)],
            workspace: whole(pinned),
            tokens: 0,
            sequences: 0,
            scalars: &[0.0; 3],
        });
        assert_eq!(launched.is_ok(), accepted, "{choice}: {launched:?}");
    }
}
