//! The buffers of a device: memory of its own, pinned memory of the host, and memory that the host
//! lends.
#![allow(unsafe_code)] // Addresses of a driver's memory.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use espalier_host_device::{Budget, LaunchMemory, Span, check_within};
use espalier_interface::{
    Buffer, BufferRange, ErrorCode, HostMemory, LogLevel, PluginError, Result, Services,
};

use crate::driver::Driver;

/// Bytes that may be read after the end of a buffer.
const TAIL: u64 = 64;

/// Every buffer starts at a multiple of this.
const ALIGNMENT: usize = 64;

/// Where a buffer's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// In the device.
    Device,
    /// In the host, pinned by the driver.
    Pinned,
    /// In the host, as the driver refused to pin it.
    Pageable,
    /// In the host, which lends it and keeps it, registered with the driver.
    Registered,
    /// In the host, which lends it and keeps it.
    Lent,
}

/// A buffer's memory, freed when its last range is dropped, unless it is lent.
struct Block<D: Driver> {
    driver: Arc<D>,
    address: NonNull<u8>,
    bytes: u64,
    home: Home,
}

// SAFETY: a driver's memory belongs to no thread; the host orders its uses by streams and events.
unsafe impl<D: Driver> Send for Block<D> {}
// SAFETY: as above.
unsafe impl<D: Driver> Sync for Block<D> {}

impl<D: Driver> Drop for Block<D> {
    fn drop(&mut self) {
        // SAFETY: the driver gave or registered the memory, nothing has a range of it, and the host
        // frees buffers that no work uses.
        unsafe {
            match self.home {
                Home::Device => self.driver.free(self.address),
                Home::Pinned => self.driver.free_pinned(self.address),
                Home::Pageable => {
                    let layout = with_tail(self.bytes).and_then(layout);
                    dealloc(self.address.as_ptr(), layout.expect("it was allocated"));
                }
                Home::Registered => self.driver.unregister(self.address),
                Home::Lent => {}
            }
        }
    }
}

/// A checked range of a buffer, which keeps its memory.
pub struct Place<D: Driver> {
    block: Arc<Block<D>>,
    /// First byte.
    pub address: NonNull<u8>,
    /// Length in bytes.
    pub bytes: usize,
}

impl<D: Driver> Place<D> {
    /// Where it is.
    pub fn home(&self) -> Home {
        self.block.home
    }
}

/// The buffers of a device.
pub struct Buffers<D: Driver> {
    driver: Arc<D>,
    table: RwLock<Table<D>>,
    budget: Budget,
    services: Arc<dyn Services>,
    /// Set once the user knows that memory is not pinned.
    is_told: AtomicBool,
}

struct Table<D: Driver> {
    blocks: HashMap<Buffer, Arc<Block<D>>>,
    last: u64,
}

impl<D: Driver> Buffers<D> {
    /// No buffers yet of `driver`; the option of `backend` may bound the device's memory.
    pub fn bounded(
        driver: Arc<D>,
        backend: &str,
        services: Arc<dyn Services>,
        device_memory: Option<u64>,
    ) -> Self {
        Buffers {
            driver,
            table: RwLock::new(Table {
                blocks: HashMap::new(),
                last: 0,
            }),
            budget: Budget::new(backend, device_memory),
            services,
            is_told: AtomicBool::new(false),
        }
    }

    /// A buffer of the device's memory.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` with its bytes.
    pub fn alloc(&self, bytes: u64) -> Result<Buffer> {
        let no_room = |why: String| PluginError::new(ErrorCode::OUT_OF_MEMORY, why);
        let taken = self.budget.take(bytes).map_err(no_room);
        taken.map_err(|error| sized(bytes, error))?;
        let made = with_tail(bytes).and_then(|len| self.driver.alloc(len));
        let made = made.inspect_err(|_| self.budget.give_back(bytes));
        let address = made.map_err(|error| sized(bytes, error))?;
        Ok(self.insert(address, bytes, Home::Device))
    }

    /// A buffer of pinned memory of the host; of other memory of the host, which copies more
    /// slowly, where the driver refuses to pin as much.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` with its bytes.
    pub fn alloc_pinned(&self, bytes: u64) -> Result<Buffer> {
        let len = with_tail(bytes).map_err(|error| sized(bytes, error))?;
        let refused = match self.driver.alloc_pinned(len) {
            Ok(address) => return Ok(self.insert(address, bytes, Home::Pinned)),
            Err(error) if error.code == ErrorCode::OUT_OF_MEMORY => sized(bytes, error),
            Err(error) => return Err(sized(bytes, error)),
        };
        let layout = layout(len)?;
        // SAFETY: the layout has a size.
        let address = NonNull::new(unsafe { alloc_zeroed(layout) });
        let address = address.ok_or_else(|| refused.clone())?;
        if !self.is_told.swap(true, Ordering::Relaxed) {
            let what = format!(
                "memory of the host is not pinned, so copies wait for it and take longer: {}; ask for less offload, or raise the limits on locked memory (`ulimit -l`, a container's)",
                refused.message
            );
            self.services.log(LogLevel::WARN, &what);
        }
        Ok(self.insert(address, bytes, Home::Pageable))
    }

    /// Memory that the host lends, as a buffer.
    ///
    /// # Errors
    /// `INVALID` for an address that is not aligned.
    pub fn lend(&self, memory: HostMemory) -> Result<Buffer> {
        let start = memory.address();
        if !start.addr().get().is_multiple_of(ALIGNMENT) {
            let message = format!("memory of the host's at {start:p}, expected a multiple of 64");
            return Err(PluginError::invalid(message));
        }
        let bytes = memory.bytes();
        let registered = usize::try_from(bytes).is_ok_and(|len| self.driver.register(start, len));
        let home = if registered {
            Home::Registered
        } else {
            Home::Lent
        };
        Ok(self.insert(start, bytes, home))
    }

    /// Frees a buffer.
    ///
    /// # Errors
    /// `INVALID` for a buffer that does not exist.
    pub fn free(&self, buffer: Buffer) -> Result<()> {
        let removed = self.write().blocks.remove(&buffer);
        let block = removed.ok_or_else(|| missing(buffer))?;
        if block.home == Home::Device {
            self.budget.give_back(block.bytes);
        }
        Ok(())
    }

    /// The memory of a range.
    ///
    /// # Errors
    /// `INVALID` for a buffer that does not exist or ends before the range.
    pub fn place(&self, range: BufferRange) -> Result<Place<D>> {
        let block = self.read().blocks.get(&range.buffer).cloned();
        let block = block.ok_or_else(|| missing(range.buffer))?;
        check_within(range, block.bytes)?;
        // The sum is an address of the block, and follows no pointer of the host's.
        let address = block.address.as_ptr().wrapping_add(range.offset as usize);
        Ok(Place {
            block,
            address: NonNull::new(address).expect("an address within a block"),
            bytes: range.bytes as usize,
        })
    }

    fn insert(&self, address: NonNull<u8>, bytes: u64, home: Home) -> Buffer {
        let block = Arc::new(Block {
            driver: self.driver.clone(),
            address,
            bytes,
            home,
        });
        let mut table = self.write();
        table.last += 1;
        let buffer = Buffer(table.last);
        table.blocks.insert(buffer, block);
        buffer
    }

    // A panic while the lock is held leaves the table valid: every change of it is one call.
    fn read(&self) -> RwLockReadGuard<'_, Table<D>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table<D>> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Driver> LaunchMemory for Buffers<D> {
    fn span(&self, range: BufferRange) -> Result<Span> {
        let place = self.place(range)?;
        if place.home() != Home::Device {
            return Err(PluginError::invalid(format!(
                "buffer {} is the host's memory, expected memory of the device",
                range.buffer.0
            )));
        }
        Ok(Span::of_device(place.block, place.address, place.bytes))
    }

    /// By the bound alone: the library says itself where the device has no room.
    fn check_room(&self, bytes: u64) -> Result<()> {
        self.budget.check(bytes).map_err(|why| {
            let message = format!("{bytes} bytes of temporary tensors: {why}");
            PluginError::new(ErrorCode::OUT_OF_MEMORY, message)
        })
    }
}

/// The layout of memory that the driver did not give.
fn layout(len: usize) -> Result<Layout> {
    let layout = Layout::from_size_align(len, ALIGNMENT);
    layout.map_err(|why| PluginError::new(ErrorCode::OUT_OF_MEMORY, why.to_string()))
}

/// Bytes of a buffer with its tail.
fn with_tail(bytes: u64) -> Result<usize> {
    let len = bytes
        .checked_add(TAIL)
        .and_then(|len| isize::try_from(len).ok());
    let message = "its length exceeds the address space";
    let too_long = || PluginError::new(ErrorCode::OUT_OF_MEMORY, message);
    len.map(|len| len as usize).ok_or_else(too_long)
}

/// An error of an allocation, with its bytes.
fn sized(bytes: u64, error: PluginError) -> PluginError {
    PluginError::new(
        error.code,
        format!("a buffer of {bytes} bytes: {}", error.message),
    )
}

fn missing(buffer: Buffer) -> PluginError {
    PluginError::invalid(format!("buffer {} does not exist or was freed", buffer.0))
}
