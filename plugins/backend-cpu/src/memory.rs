//! Buffers as mappings, anonymous or of a file: zeros when made, back to the operating system when freed.
#![allow(unsafe_code)] // Raw addresses of mappings, shared between launches.

use std::collections::HashMap;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use espalier_interface::{Buffer, BufferRange, ErrorCode, PluginError, Result};
use memmap2::MmapMut;

use crate::{machine, mapped_file};

/// Bytes that may be read after the end of a buffer.
const TAIL: u64 = 64;

/// A buffer under this size is not worth a look at the machine's free memory.
const LARGE: u64 = 64 << 20;

/// A buffer's memory. Unmapped when the last range of it is dropped.
pub struct Mapping {
    start: NonNull<u8>,
    bytes: u64,
    _map: MmapMut,
}

// SAFETY: a mapping belongs to no thread; the host orders its accesses by streams and events.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// A checked range of a buffer, which keeps the buffer's memory alive.
#[derive(Clone)]
pub struct Span {
    _mapping: Arc<Mapping>,
    /// First byte.
    pub start: NonNull<u8>,
    /// Length in bytes.
    pub bytes: usize,
}

/// The buffers of a device.
#[derive(Default)]
pub struct Buffers {
    table: RwLock<Table>,
}

#[derive(Default)]
struct Table {
    mappings: HashMap<Buffer, Arc<Mapping>>,
    last: u64,
}

impl Buffers {
    /// A buffer of `bytes` bytes of zeros, 64-byte aligned, with a readable tail.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`.
    pub fn alloc(&self, bytes: u64) -> Result<Buffer> {
        let refused = |why: String| out_of_memory(bytes, &why);
        let free_bytes = if bytes < LARGE {
            u64::MAX
        } else {
            machine::memory().free_bytes
        };
        if bytes > free_bytes {
            return Err(refused(format!(
                "only {free_bytes} bytes of memory are free"
            )));
        }
        let map = MmapMut::map_anon(mapped_len(bytes)?).map_err(|e| refused(e.to_string()))?;
        Ok(self.add(map, bytes))
    }

    /// As [`Buffers::alloc`], of a file in `folder` that has no name, so that its pages need not stay in memory.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` where the folder has no room; `UNSUPPORTED` for one that lies in memory itself.
    pub fn alloc_mapped(&self, bytes: u64, folder: &Path) -> Result<Buffer> {
        let map = mapped_file::zeros(folder, mapped_len(bytes)?)?;
        Ok(self.add(map, bytes))
    }

    fn add(&self, mut map: MmapMut, bytes: u64) -> Buffer {
        let start = NonNull::new(map.as_mut_ptr()).expect("a mapping has an address");
        let mapping = Arc::new(Mapping {
            start,
            bytes,
            _map: map,
        });
        let mut table = self.write();
        table.last += 1;
        let buffer = Buffer(table.last);
        table.mappings.insert(buffer, mapping);
        buffer
    }

    /// Gives a buffer back.
    ///
    /// # Errors
    /// `INVALID` for a buffer that does not exist.
    pub fn free(&self, buffer: Buffer) -> Result<()> {
        match self.write().mappings.remove(&buffer) {
            Some(_) => Ok(()),
            None => Err(missing(buffer)),
        }
    }

    /// The memory of `range`.
    ///
    /// # Errors
    /// `INVALID` for a buffer that does not exist or ends before the range.
    pub fn span(&self, range: BufferRange) -> Result<Span> {
        let table = self.read();
        let Some(mapping) = table.mappings.get(&range.buffer) else {
            return Err(missing(range.buffer));
        };
        let end = range.offset.checked_add(range.bytes);
        if end.is_none_or(|end| end > mapping.bytes) {
            return Err(PluginError::invalid(format!(
                "bytes {} to {} + {} of buffer {}, which has {}",
                range.offset, range.offset, range.bytes, range.buffer.0, mapping.bytes
            )));
        }
        // SAFETY: the offset lies within the mapping, as just checked.
        let start = unsafe { mapping.start.add(range.offset as usize) };
        Ok(Span {
            _mapping: mapping.clone(),
            start,
            bytes: range.bytes as usize,
        })
    }

    // A panic while the lock is held leaves the table whole: every change of it is one call.
    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Span {
    /// Copies `from` here; both are of one length.
    pub fn fill(&self, from: &[u8]) {
        assert_eq!(from.len(), self.bytes);
        // SAFETY: the span is mapped; the host lets nobody use it meanwhile. `from` is borrowed host memory.
        unsafe { std::ptr::copy(from.as_ptr(), self.start.as_ptr(), self.bytes) };
    }

    /// Copies the bytes to `to`, of the same length.
    pub fn read(&self, to: &mut [u8]) {
        assert_eq!(to.len(), self.bytes);
        // SAFETY: as in `fill`.
        unsafe { std::ptr::copy(self.start.as_ptr(), to.as_mut_ptr(), self.bytes) };
    }

    /// Copies the bytes to `to`, of the same length; the two may overlap.
    pub fn copy(&self, to: &Span) {
        assert_eq!(to.bytes, self.bytes);
        // SAFETY: both spans are mapped; the host lets nobody use them meanwhile.
        unsafe { std::ptr::copy(self.start.as_ptr(), to.start.as_ptr(), self.bytes) };
    }
}

/// Length of the mapping of a buffer, with its tail.
fn mapped_len(bytes: u64) -> Result<usize> {
    let len = bytes
        .checked_add(TAIL)
        .and_then(|len| usize::try_from(len).ok());
    len.ok_or_else(|| out_of_memory(bytes, "more than an address can tell"))
}

fn out_of_memory(bytes: u64, why: &str) -> PluginError {
    let message = format!("a buffer of {bytes} bytes: {why}");
    PluginError::new(ErrorCode::OUT_OF_MEMORY, message)
}

fn missing(buffer: Buffer) -> PluginError {
    PluginError::invalid(format!("buffer {} does not exist or was freed", buffer.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeros_that_go_back() {
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
    fn too_much_is_refused_with_its_size() {
        let error = Buffers::default().alloc(1 << 60).unwrap_err();
        assert_eq!(error.code, ErrorCode::OUT_OF_MEMORY);
        assert!(
            error.message.contains("1152921504606846976 bytes"),
            "{error}"
        );
    }
}
