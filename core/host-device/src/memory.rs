//! Buffers as mappings, anonymous or of a file: zeros when made, returned to the operating system
//! when freed. Memory lent by the host is a buffer too, and stays the host's.
#![allow(unsafe_code)] // Raw addresses of mappings, shared between launches.

use std::collections::HashMap;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use espalier_interface::{Buffer, BufferRange, ErrorCode, HostMemory, PluginError, Result};
use memmap2::MmapMut;

use crate::prepared::LaunchMemory;
use crate::span::check_within;
use crate::{Budget, Span, machine, mapped_file};

/// Bytes that may be read after the end of a buffer.
const TAIL: u64 = 64;

/// For smaller buffers the machine's free memory is not checked.
const LARGE: u64 = 64 << 20;

/// Every buffer starts at a multiple of this.
const ALIGNMENT: usize = 64;

/// A buffer's memory. Unmapped when its last range is dropped, unless it is lent.
pub struct Mapping {
    start: NonNull<u8>,
    bytes: u64,
    /// Its bytes of the device's memory.
    of_device: u64,
    _map: Option<MmapMut>,
}

// SAFETY: a mapping belongs to no thread; the host orders its accesses by streams and events.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// The buffers of a device.
#[derive(Default)]
pub struct Buffers {
    table: RwLock<Table>,
    /// The bytes of all buffers in the device's own memory.
    budget: Budget,
    /// Name of the backend, for errors.
    backend: String,
}

#[derive(Default)]
struct Table {
    mappings: HashMap<Buffer, Arc<Mapping>>,
    last: u64,
}

impl Buffers {
    /// Buffers of a device of `backend` with a bound on its own memory; without one, all of the
    /// machine's memory.
    pub fn bounded(backend: &str, device_memory: Option<u64>) -> Self {
        Buffers {
            budget: Budget::new(backend, device_memory),
            backend: backend.to_owned(),
            ..Buffers::default()
        }
    }

    /// As [`Buffers::alloc`], of the device's own memory.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`, also where the device's own memory has no room for it.
    pub fn alloc_of_device(&self, bytes: u64) -> Result<Buffer> {
        let taken = self.budget.take(bytes);
        taken.map_err(|why| out_of_memory(bytes, &why))?;
        let map = anonymous(bytes).inspect_err(|_| self.budget.give_back(bytes))?;
        Ok(self.add(map, bytes, bytes))
    }

    /// A buffer of `bytes` bytes of zeros, 64-byte aligned, with a readable tail.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`.
    pub fn alloc(&self, bytes: u64) -> Result<Buffer> {
        Ok(self.add(anonymous(bytes)?, bytes, 0))
    }

    /// Memory lent by the host, as a buffer.
    ///
    /// # Errors
    /// `INVALID` for an address that is not aligned.
    pub fn lend(&self, memory: HostMemory) -> Result<Buffer> {
        let start = memory.address();
        if !start.addr().get().is_multiple_of(ALIGNMENT) {
            let message = format!("memory of the host's at {start:p}, expected a multiple of 64");
            return Err(PluginError::invalid(message));
        }
        Ok(self.insert(Mapping {
            start,
            bytes: memory.bytes(),
            of_device: 0,
            _map: None,
        }))
    }

    /// As [`Buffers::alloc`], backed by an unnamed file in `folder`, so that its pages need not
    /// stay in memory.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` where the folder has no room; `UNSUPPORTED` for a folder in memory.
    pub fn alloc_mapped(&self, bytes: u64, folder: &Path) -> Result<Buffer> {
        let map = mapped_file::zeros(&self.backend, folder, mapped_len(bytes)?)?;
        Ok(self.add(map, bytes, 0))
    }

    fn add(&self, mut map: MmapMut, bytes: u64, of_device: u64) -> Buffer {
        self.insert(Mapping {
            start: NonNull::new(map.as_mut_ptr()).expect("a mapping has an address"),
            bytes,
            of_device,
            _map: Some(map),
        })
    }

    fn insert(&self, mapping: Mapping) -> Buffer {
        let mut table = self.write();
        table.last += 1;
        let buffer = Buffer(table.last);
        table.mappings.insert(buffer, Arc::new(mapping));
        buffer
    }

    /// Frees a buffer.
    ///
    /// # Errors
    /// `INVALID` for a buffer that does not exist.
    pub fn free(&self, buffer: Buffer) -> Result<()> {
        let mapping = self.write().mappings.remove(&buffer);
        let mapping = mapping.ok_or_else(|| missing(buffer))?;
        self.budget.give_back(mapping.of_device);
        Ok(())
    }

    // A panic while the lock is held leaves the table valid: every change of it is one call.
    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LaunchMemory for Buffers {
    fn span(&self, range: BufferRange) -> Result<Span> {
        let table = self.read();
        let Some(mapping) = table.mappings.get(&range.buffer) else {
            return Err(missing(range.buffer));
        };
        check_within(range, mapping.bytes)?;
        // SAFETY: the offset is within the mapping, as just checked.
        let start = unsafe { mapping.start.add(range.offset as usize) };
        // SAFETY: the mapping is unmapped when its last owner is dropped; the host keeps what it
        // lends, and orders accesses by streams and events.
        Ok(unsafe { Span::of_host(mapping.clone(), start, range.bytes as usize) })
    }

    fn check_room(&self, bytes: u64) -> Result<()> {
        let room = self.budget.check(bytes).and_then(|()| room_for(bytes));
        room.map_err(|why| {
            let message = format!("{bytes} bytes of temporary tensors: {why}");
            PluginError::new(ErrorCode::OUT_OF_MEMORY, message)
        })
    }
}

/// Memory of `bytes` bytes and the tail.
fn anonymous(bytes: u64) -> Result<MmapMut> {
    let refused = |why: String| out_of_memory(bytes, &why);
    room_for(bytes).map_err(refused)?;
    let map = MmapMut::map_anon(mapped_len(bytes)?).map_err(|e| refused(e.to_string()))?;
    ask_for_huge_pages(&map);
    Ok(map)
}

/// Why the machine has no room for `bytes`, if so.
fn room_for(bytes: u64) -> std::result::Result<(), String> {
    let free_bytes = if bytes < LARGE {
        u64::MAX
    } else {
        machine::memory().free_bytes
    };
    if bytes > free_bytes {
        return Err(format!("only {free_bytes} bytes of memory are free"));
    }
    Ok(())
}

/// Asks the system for pages of 2 MiB in mappings of at least two of them: fewer page faults, and
/// fewer misses of address translations in matrix products. A system without them ignores it.
fn ask_for_huge_pages(map: &MmapMut) {
    const HUGE_PAGE: usize = 2 << 20;
    #[cfg(target_os = "linux")]
    if map.len() >= 2 * HUGE_PAGE {
        // An error says that this kernel has no such pages: the mapping serves as it is.
        let _ = map.advise(memmap2::Advice::HugePage);
    }
}

/// Length of a buffer's mapping, with its tail.
fn mapped_len(bytes: u64) -> Result<usize> {
    let len = bytes
        .checked_add(TAIL)
        .and_then(|len| usize::try_from(len).ok());
    len.ok_or_else(|| out_of_memory(bytes, "its length exceeds usize"))
}

fn out_of_memory(bytes: u64, why: &str) -> PluginError {
    let message = format!("a buffer of {bytes} bytes: {why}");
    PluginError::new(ErrorCode::OUT_OF_MEMORY, message)
}

fn missing(buffer: Buffer) -> PluginError {
    PluginError::invalid(format!("buffer {} does not exist or was freed", buffer.0))
}

#[cfg(test)]
mod tests;
