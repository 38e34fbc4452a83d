//! The host cannot touch device memory, and freed memory is poison.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;

use espalier_backend_cpu::CpuBackend;
use espalier_interface::{Backend, MemoryKind, Serial};

use super::{BYTES, whole};
use crate::memory::{BufferHome, Buffers, Freed};
use crate::pages::{POISON, Pages};

/// In the environment of a child of this test: it reads closed pages.
const CHILD: &str = "LATE_READS_CLOSED_PAGES";

const SIGSEGV: i32 = 11;

/// Reads a byte of device memory, with the pages open or not.
fn read_a_byte(open: bool) -> u8 {
    let cpu = CpuBackend::new(Arc::new(Serial)).open(0).expect("the cpu");
    let buffer = cpu.alloc(BYTES, MemoryKind::DEVICE).expect("64 bytes");
    let start = cpu.host_address(whole(buffer)).expect("an address");
    // SAFETY: a mapping of its own, kept until the end.
    let pages = unsafe { Pages::closed(start, BYTES) }.expect("closed");
    if open {
        pages.open().expect("open");
    }
    // SAFETY: the byte is mapped; a child reads it although its page is closed, and ends by that.
    unsafe { start.as_ptr().read_volatile() }
}

#[test]
fn a_stray_access_of_the_host_is_a_segmentation_fault() {
    if std::env::var_os(CHILD).is_some() {
        read_a_byte(false);
        return;
    }
    assert_eq!(read_a_byte(true), 0, "with open pages it is read");
    let mut child = Command::new(std::env::current_exe().expect("a test is a file"));
    child.args([
        "--exact",
        "tests::pages::a_stray_access_of_the_host_is_a_segmentation_fault",
    ]);
    let ended = child.env(CHILD, "1").output().expect("the test starts");
    assert_eq!(ended.status.signal(), Some(SIGSEGV), "{ended:?}");
}

#[test]
fn memory_that_is_freed_while_tasks_use_it_is_poisoned_and_stays_until_they_are_done() {
    let cpu = CpuBackend::new(Arc::new(Serial)).open(0).expect("the cpu");
    let buffer = cpu.alloc(BYTES, MemoryKind::DEVICE).expect("64 bytes");
    let start = cpu.host_address(whole(buffer)).expect("an address");
    // SAFETY: a mapping of its own, kept until the end.
    let pages = unsafe { Pages::closed(start, BYTES) }.expect("closed");
    let mut buffers = Buffers::default();
    buffers.add(buffer, BYTES, BufferHome::Device(pages));
    buffers.enter(&[buffer]);
    assert_eq!(buffers.free(buffer), Ok(Freed::InUse(1)));
    assert!(buffers.free(buffer).is_err(), "it is freed once");
    assert!(buffers.place(whole(buffer)).is_err(), "no task can name it");
    assert_eq!(buffers.live(), 0);
    {
        let _opened = buffers.open(&[buffer]).expect("the last task runs");
        let mut found = [0; BYTES as usize];
        let read = cpu.download(whole(buffer), &mut found, super::COMPUTE);
        read.expect("mapped");
        assert_eq!(found, [POISON; BYTES as usize]);
    }
    assert_eq!(buffers.leave(&[buffer]), [buffer]);
}

#[test]
fn buffers_are_zeros_again_after_others_were_freed() {
    let device = super::in_order("late");
    for _ in 0..20 {
        let buffer = super::alloc(&*device, MemoryKind::DEVICE);
        assert_eq!(super::value(&*device, buffer, super::COMPUTE), 0);
        super::upload(&*device, 1, buffer, super::COMPUTE);
        device.synchronize(super::COMPUTE).expect("an upload");
        device.free(buffer).expect("not in use");
    }
}
