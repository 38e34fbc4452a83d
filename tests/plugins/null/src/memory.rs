//! Buffers without bytes: their sizes, and the budget of the device's memory.

use std::collections::HashMap;

use espalier_interface::{Buffer, BufferRange, ErrorCode, MemoryKind, PluginError, Result};

/// The allocated buffers.
pub struct Ledger {
    budget: u64,
    used: u64,
    next: u64,
    buffers: HashMap<Buffer, (u64, MemoryKind)>,
}

impl Ledger {
    /// No buffers, with a budget of `budget` bytes.
    pub fn new(budget: u64) -> Self {
        Ledger {
            budget,
            used: 0,
            next: 1,
            buffers: HashMap::new(),
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
        let buffer = Buffer(self.next);
        self.next += 1;
        self.buffers.insert(buffer, (bytes, kind));
        Ok(buffer)
    }

    /// Frees a buffer.
    pub fn free(&mut self, buffer: Buffer) -> Result<()> {
        let found = self.buffers.remove(&buffer);
        let (bytes, kind) = found.ok_or_else(|| unknown(buffer))?;
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
