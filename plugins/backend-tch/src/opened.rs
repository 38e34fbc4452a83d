//! A folder of libtorch -> libtorch and the engine, opened in this process.
#![allow(unsafe_code)] // Opening libraries, and following the pointers that the engine hands over.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use espalier_interface::abi::{
    ABI_MAJOR, ABI_MINOR, BACKEND_VERSION, BackendTable, COMPLETION_VERSION, COMPONENT_VERSION,
    CompletionTable, ComponentTable, HOST_MEMORY_VERSION, HostMemoryTable, NATIVE_VERSION,
    NativeTable, Opaque, PluginRoot,
};
use espalier_interface::{ErrorCode, PluginError, Result};
use espalier_tch_embedded::{open, open_file};

use crate::libtorch::{self, FILES, Libtorch, missing, no_cuda};

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
    /// Names its devices for other libraries.
    pub native: NativeTable,
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

/// Opens libtorch's library of CUDA, in a process whose engine is open. The engine's shim names it.
/// Opening it again does nothing.
///
/// # Errors
/// `DEVICE` where that libtorch has none, or it cannot be opened.
pub fn cuda(libtorch: &Libtorch) -> Result<()> {
    let file = libtorch::cuda(libtorch)?;
    // SAFETY: as in `open_for_good`.
    let opened = unsafe { open_file(&file) };
    let opened =
        opened.map_err(|why| no_cuda(format!("{} cannot be opened: {why}", file.display())));
    opened.map(drop)
}

/// Opens a library of libtorch. The engine names it, and the dynamic linker then uses the one that
/// is open. It is never closed.
fn open_for_good(path: &Path) -> Result<()> {
    // SAFETY: opening runs the library's initialisers. It is libtorch of the expected version, in
    // the folder that the user gave.
    let opened = unsafe { open_file(path) };
    let opened =
        opened.map_err(|why| missing(format!("{} cannot be opened: {why}", path.display())));
    opened.map(drop)
}

fn open_engine() -> Result<Engine> {
    let failed = |what: String| PluginError::new(ErrorCode::DEVICE, format!("the engine {what}"));
    // Its devices, its threads and the error texts of libtorch outlive every scope: it stays open.
    // SAFETY: it is the engine that this library was built with, and libtorch of the version that
    // the engine was linked with is open.
    let library = unsafe { open("espalier-tch-engine", ENGINE) };
    let library = library.map_err(|why| {
        let file = FILES[1];
        missing(format!("the engine {why} (it needs {file})"))
    })?;
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
    let native = table("native", NATIVE_VERSION)?.cast::<NativeTable>();
    // SAFETY: tables of one version of the interface have one layout, and the engine's version is
    // this library's. They are statics of the engine.
    unsafe {
        Ok(Engine {
            context: root.context,
            component: *component,
            backend: *backend,
            host_memory: *host_memory,
            completion: *completion,
            native: *native,
        })
    }
}
