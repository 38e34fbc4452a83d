//! The compiled kernels of a card: loaded once, and launched.
#![allow(unsafe_code)] // Calls of the driver.

use std::collections::HashMap;
use std::ffi::CString;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{CUfunction, CUfunction_attribute, CUmodule};
use espalier_host_device::Place;
use espalier_interface::{PluginError, Result};

use crate::arguments::{Arguments, address};
use crate::card::Card;
use crate::compiler::Compiler;
use crate::current;
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

/// The loaded modules of a card.
pub struct Modules {
    card: Arc<Card>,
    compiler: Compiler,
    loaded: Mutex<HashMap<(&'static str, String), Arc<Module>>>,
}

struct Module {
    card: Arc<Card>,
    raw: CUmodule,
}

// SAFETY: modules and functions may be used from any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Drop for Module {
    fn drop(&mut self) {
        if self.card.enter().is_ok() {
            // SAFETY: the driver loaded it, and nothing uses its functions.
            unsafe { (self.card.driver.unload_module)(self.raw) };
        }
    }
}

/// A kernel of a card.
#[derive(Clone)]
pub struct Function {
    module: Arc<Module>,
    raw: CUfunction,
    name: String,
}

// SAFETY: as for modules.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Modules {
    /// No modules yet.
    pub fn new(card: Arc<Card>, compiler: Compiler) -> Self {
        Modules {
            card,
            compiler,
            loaded: Mutex::default(),
        }
    }

    /// The kernel `name` of `source`, compiled with definitions before it.
    ///
    /// # Errors
    /// `DEVICE` where it cannot be compiled or loaded.
    pub fn function(&self, source: Source, definitions: &str, name: &str) -> Result<Function> {
        let module = self.module(source, definitions)?;
        let symbol = CString::new(name).map_err(|why| PluginError::invalid(why.to_string()))?;
        // The module may have been loaded by another thread, or before this one used another card.
        self.card.enter()?;
        let mut raw = null_mut();
        // SAFETY: the driver writes a handle; the module lives.
        let code =
            unsafe { (self.card.driver.function)(&raw mut raw, module.raw, symbol.as_ptr()) };
        self.card.called(name, code)?;
        Ok(Function {
            module,
            raw,
            name: name.to_owned(),
        })
    }

    /// A table of `bytes` in the card's memory.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`, `DEVICE`.
    pub fn table(&self, bytes: &[u8]) -> Result<Arc<DeviceTable>> {
        DeviceTable::new(self.card.clone(), bytes).map(Arc::new)
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
        let code = unsafe { (self.card.driver.fill)(to, 0, place.bytes, current::stream()) };
        self.card.called("zero", code)
    }

    fn module(&self, source: Source, definitions: &str) -> Result<Arc<Module>> {
        let key = (source.name, definitions.to_owned());
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = loaded.get(&key) {
            return Ok(module.clone());
        }
        let code = self.compiler.compiled(source, definitions)?;
        self.card.enter()?;
        let mut raw = null_mut();
        // SAFETY: the driver reads the code, whose length it holds itself, and writes a handle.
        let status = unsafe { (self.card.driver.load_module)(&raw mut raw, code.as_ptr().cast()) };
        self.card.called(source.name, status)?;
        let module = Arc::new(Module {
            card: self.card.clone(),
            raw,
        });
        loaded.insert(key, module.clone());
        Ok(module)
    }
}

impl Function {
    /// The kernel, which may have this much shared memory.
    ///
    /// # Errors
    /// `DEVICE` where the card has less.
    pub fn with_shared(self, bytes: u32) -> Result<Self> {
        if bytes > ORDINARY_SHARED_BYTES {
            let card = &self.module.card;
            let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            card.enter()?;
            // SAFETY: the function lives.
            let code = unsafe { (card.driver.set_attribute)(self.raw, most, bytes as i32) };
            card.called(&self.name, code)?;
        }
        Ok(self)
    }

    /// Puts the kernel on this thread's stream: `grid` blocks of [`THREADS`]. Without blocks it
    /// does nothing.
    ///
    /// # Errors
    /// `DEVICE`.
    pub fn launch(&self, grid: [u64; 3], shared: u32, arguments: &Arguments) -> Result<()> {
        if grid.contains(&0) {
            return Ok(());
        }
        let [x, y, z] = grid.map(|extent| u32::try_from(extent).unwrap_or(u32::MAX));
        let card = &self.module.card;
        let mut pointers = arguments.pointers();
        // SAFETY: the arguments are those of the kernel, which its caller states beside it, and the
        // driver copies them.
        let code = unsafe {
            (card.driver.launch)(
                self.raw,
                x,
                y,
                z,
                THREADS as u32,
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
        self.launch_over_with(elements, 0, arguments)
    }

    /// The same of a kernel with shared memory.
    ///
    /// # Errors
    /// `DEVICE`.
    pub fn launch_over_with(
        &self,
        elements: usize,
        shared: u32,
        arguments: &Arguments,
    ) -> Result<()> {
        let blocks = (elements as u64).div_ceil(THREADS).min(MOST_BLOCKS);
        self.launch([blocks, 1, 1], shared, arguments)
    }
}
