//! A card: its driver, its context and what it is.
#![allow(unsafe_code)] // Calls of the driver.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::null_mut;

use cudarc::driver::sys::{CUcontext, CUdevice, CUdevice_attribute};
use espalier_interface::{ErrorCode, PluginError, Result};

use crate::functions::Driver;
use crate::libraries::Libraries;

/// The code of a call that had no memory.
const NO_MEMORY: u32 = 2;

/// An open card.
pub struct Card {
    /// The driver.
    pub driver: &'static Driver,
    /// Its number, as CUDA counts.
    pub index: u32,
    /// Compute capability.
    pub capability: [i32; 2],
    /// Bytes of shared memory that a block may have.
    pub block_shared_bytes: u32,
    /// Shared memory of each multiprocessor, in bytes.
    pub multiprocessor_bytes: usize,
    device: CUdevice,
    context: CUcontext,
}

// SAFETY: a context may be used from any thread, each of which makes it current first.
unsafe impl Send for Card {}
// SAFETY: as above.
unsafe impl Sync for Card {}

impl Drop for Card {
    fn drop(&mut self) {
        // SAFETY: the context was retained once.
        unsafe { (self.driver.release_context)(self.device) };
    }
}

/// The result of a call of the driver: `OUT_OF_MEMORY`, or `DEVICE` with the driver's words.
pub fn called(driver: &Driver, what: &str, code: u32) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let text = |of: unsafe extern "C" fn(u32, *mut *const c_char) -> u32| {
        let mut text = std::ptr::null();
        // SAFETY: the driver writes a pointer to a static text, or nothing.
        unsafe {
            of(code, &raw mut text);
            let text = (!text.is_null()).then(|| CStr::from_ptr(text));
            text.map(|text| text.to_string_lossy().into_owned())
        }
    };
    let name = text(driver.error_name).unwrap_or_else(|| format!("error {code}"));
    let why = text(driver.error_text).filter(|why| *why != name);
    let why = why.map_or(String::new(), |why| format!(", {why}"));
    let kind = match code {
        NO_MEMORY => ErrorCode::OUT_OF_MEMORY,
        _ => ErrorCode::DEVICE,
    };
    Err(PluginError::new(kind, format!("CUDA: {what}: {name}{why}")))
}

/// How many cards the driver has.
///
/// # Errors
/// `DEVICE` where it has none or cannot start.
pub fn count(libraries: &Libraries) -> Result<u32> {
    let driver = libraries.driver;
    let mut count = 0;
    // SAFETY: the driver writes a number.
    let started = unsafe { (driver.init)(0) };
    let listed = called(driver, "start", started).and_then(|()| {
        // SAFETY: as above.
        let code = unsafe { (driver.device_count)(&raw mut count) };
        called(driver, "count of cards", code)
    });
    listed.map_err(|error| PluginError {
        message: format!(
            "expected a card of NVIDIA, found none: {}; `nvidia-smi` lists the cards that the driver has",
            error.message
        ),
        ..error
    })?;
    Ok(u32::try_from(count).unwrap_or(0))
}

impl Card {
    /// Opens card number `index`, which there is.
    ///
    /// # Errors
    /// `DEVICE`.
    pub fn open(libraries: &Libraries, index: u32) -> Result<Self> {
        let driver = libraries.driver;
        let (mut device, mut context) = (0, null_mut());
        // SAFETY: the driver writes handles.
        unsafe {
            called(
                driver,
                "card",
                (driver.device)(&raw mut device, index as c_int),
            )?;
            let code = (driver.retain_context)(&raw mut context, device);
            called(driver, "context", code)?;
        }
        let mut card = Card {
            driver,
            index,
            capability: [0; 2],
            block_shared_bytes: 0,
            multiprocessor_bytes: 0,
            device,
            context,
        };
        use CUdevice_attribute as Attribute;
        card.capability = [
            card.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            card.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ];
        let shared = Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        card.block_shared_bytes = card.attribute(shared)? as u32;
        let shared = Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR;
        card.multiprocessor_bytes = card.attribute(shared)?.max(0) as usize;
        Ok(card)
    }

    /// Makes this card's context that of this thread.
    ///
    /// # Errors
    /// `DEVICE`.
    pub fn enter(&self) -> Result<()> {
        // SAFETY: the context lives as long as `self`.
        self.called("context", unsafe {
            (self.driver.set_context)(self.context)
        })
    }

    /// The result of a call of this card's driver.
    ///
    /// # Errors
    /// As [`called`].
    pub fn called(&self, what: &str, code: u32) -> Result<()> {
        called(self.driver, what, code)
    }

    /// Its name.
    ///
    /// # Errors
    /// `DEVICE`.
    pub fn name(&self) -> Result<String> {
        let mut name: [c_char; 256] = [0; 256];
        // SAFETY: the driver writes a text that ends with a zero within the array.
        unsafe {
            let code = (self.driver.device_name)(name.as_mut_ptr(), 255, self.device);
            self.called("name", code)?;
            Ok(CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned())
        }
    }

    /// All of its memory and what is free, in bytes.
    ///
    /// # Errors
    /// `DEVICE`.
    pub fn memory(&self) -> Result<[u64; 2]> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the driver writes two numbers.
        let code = unsafe { (self.driver.memory_info)(&raw mut free, &raw mut total) };
        self.called("memory", code)?;
        Ok([total as u64, free as u64])
    }

    /// The version of CUDA that the driver serves, 13000 for 13.0.
    ///
    /// # Errors
    /// `DEVICE`.
    pub fn cuda_version(&self) -> Result<i32> {
        let mut version = 0;
        // SAFETY: the driver writes a number.
        self.called("version", unsafe {
            (self.driver.version)(&raw mut version)
        })?;
        Ok(version)
    }

    fn attribute(&self, which: CUdevice_attribute) -> Result<i32> {
        let mut value = 0;
        // SAFETY: the driver writes a number.
        let code = unsafe { (self.driver.device_attribute)(&raw mut value, which, self.device) };
        self.called("attribute", code)?;
        Ok(value)
    }
}
