//! The kernels of a card: compiled and loaded when they are first launched.
#![allow(unsafe_code)] // Calls of the driver.

use std::collections::HashMap;
use std::ffi::CString;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use cudarc::driver::sys::{CUfunction, CUfunction_attribute};
use espalier_host_device::Place;
use espalier_interface::{ErrorCode, PluginError, Result};

use crate::arguments::{Arguments, address};
use crate::current;
use crate::loader::{Loader, Module};
use crate::sources::Source;
use crate::tables::DeviceTable;

/// Threads of a block, as `kernels/cuda/element.cuh` has it.
pub const THREADS: u64 = 256;

/// Elements of a block's tile, as `kernels/cuda/packs.cuh` has it.
pub const TILE: usize = 16 * THREADS as usize;

/// Shared memory that a kernel may have without asking.
const ORDINARY_SHARED_BYTES: u32 = 48 << 10;

/// Most blocks of a kernel that takes turns over elements.
const MOST_BLOCKS: u64 = 4096;

/// The modules of a card that kernels were asked of.
pub struct Modules {
    loader: Arc<Loader>,
    known: Mutex<HashMap<(&'static str, String), Arc<Module>>>,
    tables: Mutex<HashMap<Vec<u8>, Weak<DeviceTable>>>,
}

/// A kernel of a card.
#[derive(Clone)]
pub struct Function {
    loader: Arc<Loader>,
    module: Arc<Module>,
    name: String,
    /// Bytes of shared memory that it may have.
    shared: u32,
    /// Set by the first launch.
    handle: Arc<OnceLock<Handle>>,
}

/// The driver's handle of a kernel.
#[derive(Clone, Copy)]
struct Handle(CUfunction);

// SAFETY: functions may be used from any thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Modules {
    /// No modules yet.
    pub fn new(loader: Loader) -> Self {
        Modules {
            loader: Arc::new(loader),
            known: Mutex::default(),
            tables: Mutex::default(),
        }
    }

    /// The kernel `name` of `source` with definitions before it. It is compiled at the first launch
    /// of a kernel, which tells whether the source is right.
    ///
    /// # Errors
    /// `DEVICE` where it would have to be compiled and there is no compiler.
    pub fn function(&self, source: Source, definitions: &str, name: &str) -> Result<Function> {
        let function = self.spare_function(source, definitions, name);
        self.loader.enlist(&function.module)?;
        Ok(function)
    }

    /// The same of a kernel that may never be launched: its own first launch compiles it, unless
    /// another kernel of its source is compiled before.
    pub fn spare_function(&self, source: Source, definitions: &str, name: &str) -> Function {
        Function {
            loader: self.loader.clone(),
            module: self.module(source, definitions),
            name: name.to_owned(),
            shared: ORDINARY_SHARED_BYTES,
            handle: Arc::default(),
        }
    }

    /// Shared memory of each of the card's multiprocessors, in bytes.
    pub fn shared_bytes(&self) -> usize {
        self.loader.card.multiprocessor_bytes
    }

    /// A table of `bytes` in the card's memory: one for all kernels that ask for the same.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`, `DEVICE`.
    pub fn table(&self, bytes: &[u8]) -> Result<Arc<DeviceTable>> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = tables.get(bytes).and_then(Weak::upgrade) {
            return Ok(table);
        }
        let table = Arc::new(DeviceTable::new(self.loader.card.clone(), bytes)?);
        tables.retain(|_, table| table.strong_count() > 0);
        tables.insert(bytes.to_owned(), Arc::downgrade(&table));
        Ok(table)
    }

    /// Puts zeros at `place` on this thread's stream.
    ///
    /// # Errors
    /// `DEVICE`.
    pub fn zero(&self, place: Place) -> Result<()> {
        if place.bytes == 0 {
            return Ok(());
        }
        let to = address(place);
        // SAFETY: the launch has the memory.
        let code = unsafe { (self.loader.card.driver.fill)(to, 0, place.bytes, current::stream()) };
        self.loader.card.called("zero", code)
    }

    fn module(&self, source: Source, definitions: &str) -> Arc<Module> {
        let key = (source.name, definitions.to_owned());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let module = known.entry(key);
        let module = module.or_insert_with(|| self.loader.module(source, definitions));
        module.clone()
    }
}

impl Function {
    /// The kernel, which may have this much shared memory.
    ///
    /// # Errors
    /// `DEVICE` where the card has less.
    pub fn with_shared(mut self, bytes: u32) -> Result<Self> {
        let most = self.loader.card.block_shared_bytes;
        if bytes > most {
            let what = format!(
                "{} needs {bytes} bytes of shared memory, the card has {most}",
                self.name
            );
            return Err(PluginError::new(ErrorCode::DEVICE, what));
        }
        self.shared = self.shared.max(bytes);
        self.handle = Arc::default();
        Ok(self)
    }

    /// The kernel, compiled and loaded now: for a source of which `prepare` has to tell whether it
    /// is right.
    ///
    /// # Errors
    /// `DEVICE` where it cannot be compiled or loaded.
    pub fn compiled(self) -> Result<Self> {
        self.loader.loaded_now(&self.module)?;
        self.handle()?;
        Ok(self)
    }

    /// The driver's handle. The first call compiles and loads what kernels wait for.
    fn handle(&self) -> Result<CUfunction> {
        if let Some(handle) = self.handle.get() {
            return Ok(handle.0);
        }
        let card = &self.loader.card;
        let module = self.loader.loaded(&self.module)?;
        let symbol = CString::new(self.name.as_str());
        let symbol = symbol.map_err(|why| PluginError::invalid(why.to_string()))?;
        card.enter()?;
        let mut raw = null_mut();
        // SAFETY: the driver writes a handle; the module lives.
        let code = unsafe { (card.driver.function)(&raw mut raw, module, symbol.as_ptr()) };
        card.called(&self.name, code)?;
        if self.shared > ORDINARY_SHARED_BYTES {
            let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // All of a multiprocessor's memory that may be shared: several blocks need it.
            let share = CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
            for (attribute, value) in [(most, self.shared as i32), (share, 100)] {
                // SAFETY: the function lives.
                let code = unsafe { (card.driver.set_attribute)(raw, attribute, value) };
                card.called(&self.name, code)?;
            }
        }
        Ok(self.handle.get_or_init(|| Handle(raw)).0)
    }

    /// Puts the kernel on this thread's stream: `grid` blocks of [`THREADS`]. Without blocks it
    /// does nothing.
    ///
    /// # Errors
    /// `DEVICE`.
    pub fn launch(&self, grid: [u64; 3], shared: u32, arguments: &Arguments) -> Result<()> {
        self.launch_of(THREADS as u32, grid, shared, arguments)
    }

    /// The same with blocks of `threads`.
    ///
    /// # Errors
    /// `DEVICE`.
    pub fn launch_of(
        &self,
        threads: u32,
        grid: [u64; 3],
        shared: u32,
        arguments: &Arguments,
    ) -> Result<()> {
        if grid.contains(&0) {
            return Ok(());
        }
        let [x, y, z] = grid.map(|extent| u32::try_from(extent).unwrap_or(u32::MAX));
        let (card, handle) = (&self.loader.card, self.handle()?);
        let mut pointers = arguments.pointers();
        // SAFETY: the arguments are those of the kernel, which its caller states beside it, and the
        // driver copies them.
        let code = unsafe {
            (card.driver.launch)(
                handle,
                x,
                y,
                z,
                threads,
                1,
                1,
                shared,
                current::stream(),
                pointers.as_mut_ptr(),
                null_mut(),
            )
        };
        card.called(&self.name, code)
    }

    /// Puts a kernel with a block for each tile of `elements` elements on this thread's stream.
    ///
    /// # Errors
    /// `DEVICE`.
    pub fn launch_tiles(&self, elements: usize, arguments: &Arguments) -> Result<()> {
        self.launch([elements.div_ceil(TILE) as u64, 1, 1], 0, arguments)
    }

    /// Puts a kernel that takes turns over `elements` elements on this thread's stream.
    ///
    /// # Errors
    /// `DEVICE`.
    pub fn launch_over(&self, elements: usize, arguments: &Arguments) -> Result<()> {
        let blocks = (elements as u64).div_ceil(THREADS).min(MOST_BLOCKS);
        self.launch([blocks, 1, 1], 0, arguments)
    }
}
