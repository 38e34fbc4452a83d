//! The table of the CUDA shim, whose functions return a code and a text.
#![allow(unsafe_code)] // Calls of C functions.

use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

use espalier_interface::{ErrorCode, PluginError, Result};

/// The shim's library; empty where the engine was built without it.
static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/cuda_shim.so"));

/// Why there is no shim.
pub static MISSING: &str = include_str!(concat!(env!("OUT_DIR"), "/no_cuda.txt"));

/// Bytes of an error's text.
const TEXT_BYTES: usize = 2048;

/// The code of a call that had no memory.
const NO_MEMORY: i32 = 2;

/// Where a call writes its text.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Text {
    start: *mut c_char,
    capacity: u64,
}

/// A card as the shim describes it.
#[repr(C)]
pub struct Card {
    name: [c_char; 256],
    /// All of its memory.
    pub total_bytes: u64,
    /// What is free now.
    pub free_bytes: u64,
    /// Compute capability.
    pub major: i32,
    /// Its second number.
    pub minor: i32,
    /// Version of the CUDA runtime, 13000 for 13.0.
    pub runtime: i32,
    /// Not 0 where a copy from pageable memory may read it after the call.
    pub reads_pageable_later: i32,
}

/// A stream of libtorch's pool.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct StreamName {
    id: i64,
    device: i32,
    /// The `cudaStream_t`.
    pub native: *mut c_void,
}

// SAFETY: CUDA's streams may be used from any thread.
unsafe impl Send for StreamName {}
// SAFETY: as above.
unsafe impl Sync for StreamName {}

/// The shim's functions. The shim states what each does.
#[repr(C)]
pub struct Shim {
    pub start: extern "C" fn(*mut i32, Text) -> i32,
    pub card: extern "C" fn(i32, *mut Card, Text) -> i32,
    pub alloc: extern "C" fn(*const StreamName, u64, *mut *mut c_void, Text) -> i32,
    pub release: extern "C" fn(*mut c_void, Text) -> i32,
    pub alloc_pinned: extern "C" fn(i32, u64, *mut *mut c_void, Text) -> i32,
    pub release_pinned: extern "C" fn(*mut c_void, Text) -> i32,
    pub stream: extern "C" fn(i32, *mut StreamName, Text) -> i32,
    pub enter: extern "C" fn(*const StreamName, Text) -> i32,
    pub copy: extern "C" fn(*const StreamName, *const c_void, *mut c_void, u64, i32, Text) -> i32,
    pub upload: extern "C" fn(*const StreamName, *const c_void, *mut c_void, u64, Text) -> i32,
    pub synchronize: extern "C" fn(*const StreamName, Text) -> i32,
    pub record: extern "C" fn(*const StreamName, *mut *mut c_void, Text) -> i32,
    pub wait: extern "C" fn(*const StreamName, *mut c_void, Text) -> i32,
    pub query: extern "C" fn(*mut c_void, *mut i32, Text) -> i32,
    pub free_event: extern "C" fn(*mut c_void, Text) -> i32,
    #[cfg_attr(not(test), allow(dead_code))]
    pub fail: extern "C" fn(i32, Text) -> i32,
}

impl Card {
    /// A card without a name.
    pub fn unknown() -> Self {
        Card {
            name: [0; 256],
            total_bytes: 0,
            free_bytes: 0,
            major: 0,
            minor: 0,
            runtime: 0,
            reads_pageable_later: 0,
        }
    }

    /// Its name.
    pub fn name(&self) -> String {
        let bytes = self.name.iter().take_while(|&&byte| byte != 0);
        let bytes: Vec<u8> = bytes.map(|&byte| byte as u8).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl StreamName {
    /// A place for a name.
    pub fn none() -> Self {
        StreamName {
            id: 0,
            device: 0,
            native: std::ptr::null_mut(),
        }
    }
}

/// The result of `call`, which is given a place for its text: `DEVICE`, or `OUT_OF_MEMORY`, with
/// the first line of it.
pub fn called(call: impl FnOnce(Text) -> i32) -> Result<()> {
    let mut bytes: [c_char; TEXT_BYTES] = [0; TEXT_BYTES];
    let code = call(Text {
        start: bytes.as_mut_ptr(),
        capacity: TEXT_BYTES as u64,
    });
    if code == 0 {
        return Ok(());
    }
    // SAFETY: the shim writes a text that ends with a zero, and the array was zeros before.
    let text = unsafe { CStr::from_ptr(bytes.as_ptr()) }.to_string_lossy();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    let code = match code {
        NO_MEMORY => ErrorCode::OUT_OF_MEMORY,
        _ => ErrorCode::DEVICE,
    };
    Err(PluginError::new(
        code,
        format!("CUDA: {}", line.unwrap_or("no message")),
    ))
}

/// The shim, opened once for each process. libtorch's CUDA libraries are open, or can be found by
/// the dynamic linker.
///
/// # Errors
/// `DEVICE` where the engine has none, or it cannot be opened.
pub fn shim() -> Result<&'static Shim> {
    static OPENED: OnceLock<std::result::Result<&'static Shim, String>> = OnceLock::new();
    let opened = OPENED.get_or_init(open);
    opened
        .clone()
        .map_err(|why| PluginError::new(ErrorCode::DEVICE, why))
}

fn open() -> std::result::Result<&'static Shim, String> {
    if LIBRARY.is_empty() {
        return Err(format!(
            "the engine was built without CUDA: {MISSING}; build it with `cargo xtask backends` \
             and a libtorch with CUDA"
        ));
    }
    // SAFETY: it is the shim that this engine was built with; libtorch of the version that both
    // were built with is open.
    let library = unsafe { espalier_tch_embedded::open("espalier-tch-cuda", LIBRARY) };
    let library = library.map_err(|why| format!("the engine's CUDA shim {why}"))?;
    // SAFETY: the shim gives the symbol this type.
    let table = unsafe { library.get::<extern "C" fn() -> *const Shim>(b"espalier_tch_cuda") };
    let table = table.map_err(|_| "the engine's CUDA shim has no table".to_owned())?;
    // SAFETY: it returns a pointer to a static of this layout, in a library that is never closed.
    unsafe { table().as_ref() }.ok_or_else(|| "the engine's CUDA shim has no table".to_owned())
}
