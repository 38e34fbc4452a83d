//! Buffers' sizes, and the budget of the device's memory. Only pinned buffers have bytes: zeros
//! that the host may read and write.

use std::collections::HashMap;
use std::ptr::NonNull;

use espalier_interface::{Buffer, BufferRange, ErrorCode, MemoryKind, PluginError, Result};

/// The allocated buffers.
pub struct Ledger {
    budget: u64,
    used: u64,
    next: u64,
    buffers: HashMap<Buffer, (u64, MemoryKind)>,
    /// Bytes of pinned buffers by the first call for their address; none where the host reaches
    /// no pinned memory.
    pinned: Option<HashMap<Buffer, Vec<u8>>>,
}

impl Ledger {
    /// No buffers, with a budget of `budget` bytes. The host reaches pinned memory where `pinned`.
    pub fn new(budget: u64, pinned: bool) -> Self {
        Ledger {
            budget,
            used: 0,
            next: 1,
            buffers: HashMap::new(),
            pinned: pinned.then(HashMap::new),
        }
    }

    /// A buffer; only `DEVICE` counts against the budget.
    pub fn alloc(&mut self, bytes: u64, kind: MemoryKind) -> Result<Buffer> {
        if kind == MemoryKind::DEVICE {
            let used = self
                .used
                .checked_add(bytes)
                .filter(|used| *used <= self.budget);
            self.used = used.ok_or_else(|| {
                let free = self.budget - self.used;
                let message = format!("{bytes} bytes are wanted, {free} are free");
                PluginError::new(ErrorCode::OUT_OF_MEMORY, message)
            })?;
        } else if kind != MemoryKind::PINNED {
            let message = format!("memory of kind {} is not served", kind.0);
            return Err(PluginError::unsupported(message));
        }
        Ok(self.add(bytes, kind))
    }

    /// A buffer of host memory that the ledger does not own.
    pub fn import(&mut self, bytes: u64) -> Buffer {
        self.add(bytes, MemoryKind::PINNED)
    }

    fn add(&mut self, bytes: u64, kind: MemoryKind) -> Buffer {
        let buffer = Buffer(self.next);
        self.next += 1;
        self.buffers.insert(buffer, (bytes, kind));
        buffer
    }

    /// The host's address of a range of a pinned buffer. Its bytes exist from the first call on.
    pub fn host_address(&mut self, range: BufferRange) -> Option<NonNull<u8>> {
        self.check(range).ok()?;
        let (bytes, kind) = self.buffers[&range.buffer];
        if kind != MemoryKind::PINNED {
            return None;
        }
        let zeros = || vec![0; bytes as usize];
        let pinned = self
            .pinned
            .as_mut()?
            .entry(range.buffer)
            .or_insert_with(zeros);
        NonNull::new(pinned[range.offset as usize..].as_mut_ptr())
    }

    /// Frees a buffer.
    pub fn free(&mut self, buffer: Buffer) -> Result<()> {
        let found = self.buffers.remove(&buffer);
        let (bytes, kind) = found.ok_or_else(|| unknown(buffer))?;
        if let Some(pinned) = &mut self.pinned {
            pinned.remove(&buffer);
        }
        if kind == MemoryKind::DEVICE {
            self.used -= bytes;
        }
        Ok(())
    }

    /// Checks that a range is within its buffer.
    pub fn check(&self, range: BufferRange) -> Result<()> {
        let (bytes, _) = self
            .buffers
            .get(&range.buffer)
            .ok_or_else(|| unknown(range.buffer))?;
        let end = range.offset.checked_add(range.bytes);
        if end.is_some_and(|end| end <= *bytes) {
            return Ok(());
        }
        Err(PluginError::invalid(format!(
            "{} bytes from byte {} of a buffer of {bytes}",
            range.bytes, range.offset
        )))
    }

    /// Checks that both ends of a copy have the same length.
    pub fn same(&self, from: u64, to: u64) -> Result<()> {
        if from == to {
            return Ok(());
        }
        Err(PluginError::invalid(format!(
            "{from} bytes are copied to {to}"
        )))
    }
}

fn unknown(buffer: Buffer) -> PluginError {
    PluginError::invalid(format!("there is no buffer {}", buffer.0))
}
