//! A region of host memory, private or shared with other processes of the machine.
#![allow(unsafe_code)] // Mapping a file, and lending the memory.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use espalier_interface::HostMemory;
use espalier_interface::bytes::Bytes;
use espalier_system::memory::{self, OutOfMemory};
use memmap2::{MmapMut, MmapOptions, MmapRaw};

use crate::Error;

/// Bytes that devices may read after the end of lent memory.
const TAIL: u64 = 64;

/// Memory that is zeroed at first and has a fixed address until it is dropped.
pub struct HostRegion {
    map: MmapRaw,
    bytes: u64,
}

impl HostRegion {
    /// Memory of this process alone.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn anonymous(bytes: u64) -> Result<Self, Error> {
        let map = usize::try_from(HostRegion::mapped_bytes(bytes))
            .map_err(io::Error::other)
            .and_then(MmapMut::map_anon)
            .map_err(|_| out_of_memory(bytes))?;
        let map = MmapRaw::from(map);
        Ok(HostRegion { map, bytes })
    }

    /// The content of `file`, shared with all that map it. The file has
    /// [`HostRegion::mapped_bytes`] bytes.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(super) fn of_file(file: &File, bytes: u64) -> io::Result<Self> {
        let len = usize::try_from(HostRegion::mapped_bytes(bytes)).map_err(io::Error::other)?;
        let map = MmapOptions::new().len(len).map_raw(file)?;
        Ok(HostRegion { map, bytes })
    }

    /// Bytes that a region of `bytes` takes.
    pub(super) fn mapped_bytes(bytes: u64) -> u64 {
        bytes.saturating_add(TAIL)
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The region, to be lent to devices, which must give it back before it is dropped.
    pub fn memory(&self) -> HostMemory {
        let start = NonNull::new(self.map.as_mut_ptr()).expect("a mapping has an address");
        // SAFETY: mappings begin at pages and have the tail; whoever lends it keeps it (see above).
        unsafe { HostMemory::new(start, self.bytes) }
    }

    /// Some of the bytes.
    ///
    /// # Safety
    /// Nothing may write them while they are borrowed.
    pub(super) unsafe fn slice(&self, range: &Range<u64>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.bytes);
        let len = (range.end - range.start) as usize;
        // SAFETY: the range lies within the mapping, as just checked; the caller vouches for the
        // rest.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(range.start as usize), len) }
    }

    /// Sets bytes to zero. Nothing else may use them meanwhile.
    pub(super) fn clear(&self, range: Range<u64>) {
        assert!(range.start <= range.end && range.end <= self.bytes);
        let len = (range.end - range.start) as usize;
        // SAFETY: the range lies within the mapping, as just checked, and is nobody else's
        // meanwhile.
        unsafe { std::ptr::write_bytes(self.map.as_mut_ptr().add(range.start as usize), 0, len) };
    }
}

/// The error for `bytes` bytes of host memory that cannot be allocated.
pub(super) fn out_of_memory(bytes: u64) -> Error {
    Error::OutOfMemory(OutOfMemory {
        kind: "host".to_owned(),
        needed: Bytes(bytes),
        available: Bytes(memory::available_bytes().unwrap_or(0)),
    })
}
