//! Buffers, ranges, limits and borrowed host memory.

use super::*;

#[test]
fn buffers_are_aligned_zeros_and_are_freed() {
    let buffers = Buffers::default();
    let buffer = buffers.alloc(100).unwrap();
    let whole = BufferRange {
        buffer,
        offset: 0,
        bytes: 100,
    };
    let span = buffers.span(whole).unwrap();
    assert_eq!(span.start.as_ptr() as usize % 64, 0);
    let mut found = [1; 100];
    span.read(&mut found);
    assert_eq!(found, [0; 100]);
    buffers.free(buffer).unwrap();
    assert!(
        buffers
            .free(buffer)
            .unwrap_err()
            .message
            .contains("was freed")
    );
    assert!(buffers.span(whole).is_err());
}

#[test]
fn ranges_outside_are_refused() {
    let buffers = Buffers::default();
    let buffer = buffers.alloc(100).unwrap();
    for (offset, bytes) in [(64, 37), (101, 0), (u64::MAX, 2)] {
        let error = buffers
            .span(BufferRange {
                buffer,
                offset,
                bytes,
            })
            .err()
            .unwrap();
        assert_eq!(error.code, ErrorCode::INVALID);
        assert!(error.message.contains("which has 100"), "{error}");
    }
    assert!(
        buffers
            .span(BufferRange {
                buffer,
                offset: 100,
                bytes: 0
            })
            .is_ok()
    );
}

#[test]
fn a_buffer_beyond_free_memory_is_refused_with_its_size() {
    let error = Buffers::default().alloc(1 << 60).unwrap_err();
    assert_eq!(error.code, ErrorCode::OUT_OF_MEMORY);
    assert!(
        error.message.contains("1152921504606846976 bytes"),
        "{error}"
    );
}

#[test]
fn a_buffer_beyond_the_device_memory_is_refused_with_the_bound() {
    let buffers = Buffers::bounded("cpu", Some(1 << 20));
    let first = buffers.alloc_of_device(1000 << 10).unwrap();
    let error = buffers.alloc_of_device(25 << 10).unwrap_err();
    assert_eq!(error.code, ErrorCode::OUT_OF_MEMORY);
    let expected = "a buffer of 25600 bytes: only 24576 bytes (24.00 KiB) of the 1.00 MiB";
    assert!(error.message.starts_with(expected), "{error}");
    buffers.alloc(2 << 20).expect("the host's is another");
    buffers.alloc_of_device(24 << 10).expect("to the last byte");
    buffers.free(first).unwrap();
    buffers.alloc_of_device(1000 << 10).expect("given back");
    assert!(buffers.alloc_of_device(u64::MAX).is_err());
    // All but 24 KiB of 1 MiB is taken by the second buffer and the last.
    let error = buffers.check_room(1 << 20).unwrap_err();
    assert_eq!(error.code, ErrorCode::OUT_OF_MEMORY);
    let expected = "1048576 bytes of temporary tensors: only 0 bytes";
    assert!(error.message.starts_with(expected), "{error}");
    buffers.check_room(0).expect("no bytes fit anywhere");
}

#[test]
fn lent_memory_is_shared_and_stays_the_hosts() {
    let mut memory = MmapMut::map_anon(4096 + 64).unwrap();
    let lent = |address: *mut u8| {
        // SAFETY: the mapping outlives the buffers.
        unsafe { HostMemory::new(NonNull::new(address).unwrap(), 4096) }
    };
    let buffers = Buffers::bounded("cpu", Some(0));
    let buffer = buffers.lend(lent(memory.as_mut_ptr())).unwrap();
    let range = |offset, bytes| BufferRange {
        buffer,
        offset,
        bytes,
    };
    buffers.span(range(4092, 4)).unwrap().fill(&[1, 2, 3, 4]);
    assert!(buffers.span(range(4093, 4)).is_err());
    buffers.free(buffer).unwrap();
    assert_eq!(memory[4092..4096], [1, 2, 3, 4]);
    let error = buffers.lend(lent(memory.as_mut_ptr().wrapping_add(8)));
    assert_eq!(error.unwrap_err().code, ErrorCode::INVALID);
}
