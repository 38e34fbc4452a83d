//! A folder of libtorch -> libtorch and the engine, opened in this process.
#![allow(unsafe_code)] // Opening libraries, and following the pointers that the engine hands over.

use std::error::Error;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::{fs, io};

use espalier_interface::abi::{
    ABI_MAJOR, ABI_MINOR, BACKEND_VERSION, BackendTable, COMPLETION_VERSION, COMPONENT_VERSION,
    CompletionTable, ComponentTable, HOST_MEMORY_VERSION, HostMemoryTable, Opaque, PluginRoot,
};
use espalier_interface::{ErrorCode, PluginError, Result};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use crate::libtorch::{FILES, Libtorch, missing};

/// The engine's library; empty where the plugin was built without it.
static ENGINE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/engine.so"));

/// The engine, opened: its tables.
#[derive(Clone, Copy)]
pub struct Engine {
    /// Passed to `create`.
    pub context: Opaque,
    /// Makes the backend.
    pub component: ComponentTable,
    /// Opens and drives its devices.
    pub backend: BackendTable,
    /// Lends its devices memory of the host.
    pub host_memory: HostMemoryTable,
    /// Releases kernels and events.
    pub completion: CompletionTable,
}

// SAFETY: `context` points to a static of the engine, which is never closed.
unsafe impl Send for Engine {}

/// The engine of this process and the libtorch that it uses.
static OPENED: Mutex<Option<(Libtorch, Engine)>> = Mutex::new(None);

/// The function of the engine's one symbol.
type RootFn = extern "C" fn() -> *const PluginRoot;

/// Opens libtorch and the engine, once for each process.
///
/// # Errors
/// `DEVICE` where a library is missing or cannot be opened, or where this process has another
/// libtorch already.
pub fn engine(libtorch: &Libtorch) -> Result<Engine> {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((first, engine)) = &*opened {
        if first == libtorch {
            return Ok(*engine);
        }
        return Err(PluginError::new(
            ErrorCode::DEVICE,
            format!(
                "this process uses the libtorch in {} already, so not the one in {}",
                first.folder.display(),
                libtorch.folder.display()
            ),
        ));
    }
    if ENGINE.is_empty() {
        return Err(PluginError::new(
            ErrorCode::DEVICE,
            "this library was built without its engine; build it with `cargo xtask backends`",
        ));
    }
    for file in FILES {
        open_for_good(&libtorch.folder.join(file))?;
    }
    let engine = open_engine()?;
    *opened = Some((libtorch.clone(), engine));
    Ok(engine)
}

/// Opens a library of libtorch. The engine names it, and the dynamic linker then uses the one that
/// is open. It is never closed.
fn open_for_good(path: &Path) -> Result<()> {
    // SAFETY: opening runs the library's initialisers. It is libtorch of the expected version, in
    // the folder that the user gave.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    let library = library.map_err(|error| {
        missing(format!(
            "{} cannot be opened: {}",
            path.display(),
            cause(&error)
        ))
    })?;
    let _ = ManuallyDrop::new(library);
    Ok(())
}

fn open_engine() -> Result<Engine> {
    let failed = |what: String| PluginError::new(ErrorCode::DEVICE, format!("the engine {what}"));
    let copy = copy().map_err(|error| failed(format!("cannot be copied to memory: {error}")))?;
    let path = format!("/proc/self/fd/{}", copy.as_raw_fd());
    // SAFETY: it is the engine that this library was built with, and libtorch of the version that
    // the engine was linked with is open.
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) };
    let library = library.map_err(|error| {
        let file = FILES[1];
        missing(format!(
            "the engine cannot be opened with {file}: {}",
            cause(&error)
        ))
    })?;
    // Its devices, its threads and the error texts of libtorch outlive every scope.
    let library = ManuallyDrop::new(library);
    // The dynamic linker knows a library by its path too: the number must not be given again.
    let _ = ManuallyDrop::new(copy);
    // SAFETY: `declare_plugin!` gives the symbol this type.
    let root = unsafe { library.get::<RootFn>(b"espalier_root_tch-engine") };
    let root = root.map_err(|_| failed("has no root".to_owned()))?;
    // SAFETY: `declare_plugin!` returns a pointer to a static.
    let root = unsafe { root().as_ref() }.ok_or_else(|| failed("has no root".to_owned()))?;
    if [root.abi_major, root.abi_minor] != [ABI_MAJOR, ABI_MINOR] {
        return Err(failed(format!(
            "has interface {}.{}, expected {ABI_MAJOR}.{ABI_MINOR}",
            root.abi_major, root.abi_minor
        )));
    }
    let table = |name: &'static str, version| {
        let found = (root.query)(name.into(), version).table;
        let lacking = || failed(format!("has no table `{name}` in version {version}"));
        if found.is_null() {
            Err(lacking())
        } else {
            Ok(found)
        }
    };
    let component = table("component", COMPONENT_VERSION)?.cast::<ComponentTable>();
    let backend = table("backend", BACKEND_VERSION)?.cast::<BackendTable>();
    let host_memory = table("host_memory", HOST_MEMORY_VERSION)?.cast::<HostMemoryTable>();
    let completion = table("completion", COMPLETION_VERSION)?.cast::<CompletionTable>();
    // SAFETY: tables of one version of the interface have one layout, and the engine's version is
    // this library's. They are statics of the engine.
    unsafe {
        Ok(Engine {
            context: root.context,
            component: *component,
            backend: *backend,
            host_memory: *host_memory,
            completion: *completion,
        })
    }
}

/// The engine as a sealed file in memory.
fn copy() -> io::Result<fs::File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut copy = fs::File::from(memfd_create("espalier-tch-engine", flags)?);
    copy.write_all(ENGINE)?;
    let all = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&copy, all)?;
    Ok(copy)
}

/// The dynamic linker's own words, in one line.
fn cause(error: &dyn Error) -> String {
    match error.source() {
        Some(source) => cause(source),
        None => error
            .to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned(),
    }
}
