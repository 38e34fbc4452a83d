//! The buffers of a device: where they lie, who uses them, and what is left of freed ones.

use std::collections::HashMap;
use std::ptr::NonNull;

use espalier_interface::{Buffer, BufferRange, PluginError, Result};

use crate::pages::Pages;

/// Where a buffer lies.
pub enum BufferHome {
    /// In the device's memory, which the host cannot touch.
    Device(Pages),
    /// In pinned host memory.
    Pinned,
    /// In memory that the host lends and takes back when the buffer is freed.
    Lent,
}

/// A buffer.
struct BufferState {
    place: BufferHome,
    bytes: u64,
    /// Queued tasks that use it.
    users: u64,
    /// Whether it was freed while tasks used it.
    freed: bool,
}

/// What is left to do after a buffer was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freed {
    /// No task uses it: its memory can go.
    Unused,
    /// So many queued tasks still use it: its memory stays until they have run.
    InUse(u64),
}

/// The buffers of a device.
#[derive(Default)]
pub struct Buffers {
    held: HashMap<Buffer, BufferState>,
}

/// Pages that are open until this is dropped.
pub struct Opened<'a>(Vec<&'a Pages>);

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        for pages in &self.0 {
            // Pages that stay open only hide a fault that this device is there to show.
            let _ = pages.close();
        }
    }
}

impl Buffers {
    /// Adds a buffer that the `cpu` device has made.
    pub fn add(&mut self, buffer: Buffer, bytes: u64, place: BufferHome) {
        let held = BufferState {
            place,
            bytes,
            users: 0,
            freed: false,
        };
        self.held.insert(buffer, held);
    }

    /// Number of buffers that are not freed.
    pub fn live(&self) -> usize {
        self.held.values().filter(|held| !held.freed).count()
    }

    /// The place of the buffer of `range`.
    ///
    /// # Errors
    /// `INVALID` for a buffer that does not exist or ends before the range.
    pub fn place(&self, range: BufferRange) -> Result<&BufferHome> {
        let held = self.held.get(&range.buffer).filter(|held| !held.freed);
        let held = held.ok_or_else(|| missing(range.buffer))?;
        let end = range.offset.checked_add(range.bytes);
        if end.is_some_and(|end| end <= held.bytes) {
            return Ok(&held.place);
        }
        Err(PluginError::invalid(format!(
            "bytes {} to {} + {} of buffer {}, which has {}",
            range.offset, range.offset, range.bytes, range.buffer.0, held.bytes
        )))
    }

    /// The address of a range of device memory.
    pub fn address(&self, range: BufferRange) -> Option<NonNull<u8>> {
        let BufferHome::Device(pages) = self.place(range).ok()? else {
            return None;
        };
        NonNull::new(pages.start().as_ptr().wrapping_add(range.offset as usize))
    }

    /// The range of device memory of `bytes` bytes at an address.
    ///
    /// # Errors
    /// `INVALID` where no buffer has all of it.
    pub fn range_at(&self, address: usize, bytes: u64) -> Result<BufferRange> {
        let found = self.held.iter().find_map(|(&buffer, held)| {
            let BufferHome::Device(pages) = &held.place else {
                return None;
            };
            let offset = address.checked_sub(pages.start().as_ptr().addr())? as u64;
            let range = BufferRange {
                buffer,
                offset,
                bytes,
            };
            (!held.freed && offset + bytes <= held.bytes).then_some(range)
        });
        let message = || format!("{bytes} bytes at {address:#x} are no device memory");
        found.ok_or_else(|| PluginError::invalid(message()))
    }

    /// Counts a queued task that uses these buffers, each once.
    pub fn enter(&mut self, buffers: &[Buffer]) {
        for buffer in buffers {
            let held = self.held.get_mut(buffer);
            held.expect("a task's ranges were checked").users += 1;
        }
    }

    /// The task is done. Returns the freed buffers that no other task uses.
    pub fn leave(&mut self, buffers: &[Buffer]) -> Vec<Buffer> {
        let mut unused = Vec::new();
        for buffer in buffers {
            let held = self.held.get_mut(buffer);
            let held = held.expect("a buffer stays until its last task is done");
            held.users -= 1;
            if held.freed && held.users == 0 {
                self.held.remove(buffer);
                unused.push(*buffer);
            }
        }
        unused
    }

    /// Opens the pages of these buffers.
    ///
    /// # Errors
    /// `DEVICE` where the operating system refuses.
    pub fn open(&self, buffers: &[Buffer]) -> Result<Opened<'_>> {
        let mut opened = Opened(Vec::new());
        for buffer in buffers {
            if let Some(BufferHome::Device(pages)) = self.held.get(buffer).map(|held| &held.place) {
                opened.0.push(pages);
                pages.open()?;
            }
        }
        Ok(opened)
    }

    /// Whether the host has taken back memory that one of these buffers was.
    pub fn taken_back(&self, buffers: &[Buffer]) -> bool {
        let mut held = buffers.iter().filter_map(|buffer| self.held.get(buffer));
        held.any(|held| held.freed && matches!(held.place, BufferHome::Lent))
    }

    /// Frees a buffer. One that queued tasks use is overwritten with poison, so that they do not
    /// get its old content.
    ///
    /// # Errors
    /// `INVALID` for a buffer that does not exist; `DEVICE` where its pages cannot be opened.
    pub fn free(&mut self, buffer: Buffer) -> Result<Freed> {
        let held = self.held.get_mut(&buffer).filter(|held| !held.freed);
        let held = held.ok_or_else(|| missing(buffer))?;
        if held.users == 0 {
            self.held.remove(&buffer);
            return Ok(Freed::Unused);
        }
        held.freed = true;
        if let BufferHome::Device(pages) = &held.place {
            pages.open()?;
            pages.poison();
            pages.close()?;
        }
        Ok(Freed::InUse(held.users))
    }
}

fn missing(buffer: Buffer) -> PluginError {
    PluginError::invalid(format!("buffer {} does not exist or was freed", buffer.0))
}
