//! The machine -> CUDA's libraries, opened by full path where one is known.
#![allow(unsafe_code)] // Opening libraries.

mod places;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use espalier_interface::{ErrorCode, PluginError, Result};
use libloading::Library;

use crate::functions::{CublasLt, Driver, Nccl, Nvrtc};
use places::Places;

/// What the user can do about a missing driver.
const GET_DRIVER: &str = "install NVIDIA's driver; `nvidia-smi` then lists the cards that it has";

/// What the user can do about a missing compiler, with the package that fits the driver.
const GET_NVRTC: &str = "`pip install PACKAGE`, or install the CUDA toolkit and set CUDA_HOME, or name the folder of libnvrtc by backend.cuda.libraries";

/// What the user can do about a missing library of products.
const GET_CUBLASLT: &str = "`pip install nvidia-cublas` (with a driver for CUDA 12 `nvidia-cublas-cu12`), or install the CUDA toolkit and set CUDA_HOME, or name the folder of libcublasLt by backend.cuda.libraries: products of bf16 are several times as fast by it as by the backend's own kernels";

/// What the user can do about a missing library of collective calls.
const GET_NCCL: &str = "`pip install nvidia-nccl-cu13` (with a driver for CUDA 12 `nvidia-nccl-cu12`), or name the folder of libnccl by collective.nccl.libraries, or leave run.device_collective out: calls then pass through the host's memory";

/// The files of the driver, of which the first that opens is used.
const DRIVER_FILES: &[&str] = &["libcuda.so.1", "libcuda.so"];

/// The files of the compiler, newest first, and the major version of CUDA that a driver must serve
/// to take their code.
const NVRTC_FILES: &[(&str, i32)] = &[
    ("libnvrtc.so.13", 13),
    ("libnvrtc.so.12", 12),
    ("libnvrtc.so", LEAST_DRIVER / 1000),
];

/// The oldest version of CUDA that a driver may serve, 12000 for 12.0.
const LEAST_DRIVER: i32 = 12000;

/// The files of the library of products, newest first, and the major version of CUDA that each
/// needs a driver for.
const CUBLASLT_FILES: &[(&str, i32)] = &[
    ("libcublasLt.so.13", 13),
    ("libcublasLt.so.12", 12),
    ("libcublasLt.so", 12),
];

/// The files of the library of collective calls, of which the first that opens is used.
const NCCL_FILES: &[&str] = &["libnccl.so.2", "libnccl.so"];

/// The oldest version of NCCL that is used: its configuration of a communicator has the fields that
/// are set here.
const LEAST_NCCL: [i32; 2] = [2, 18];

/// The beginning of the name of the library that the compiler opens by its bare name.
const NVRTC_BUILTINS: &str = "libnvrtc-builtins.so";

/// A library's functions, or why it cannot be used and what can be done.
pub type Opened<T> = std::result::Result<&'static T, &'static str>;

/// Libraries that were looked for, by the folder that the user named.
type Known<T> = Mutex<Vec<(Option<PathBuf>, Opened<T>)>>;

/// CUDA's libraries, which stay open for ever.
#[derive(Clone, Copy)]
pub struct Libraries {
    /// The driver.
    pub driver: &'static Driver,
    /// The compiler, or why there is none.
    pub nvrtc: Opened<Nvrtc>,
}

impl Libraries {
    /// The compiler in words, for example `NVRTC 13.0`.
    pub fn compiler(&self) -> String {
        match self.nvrtc.map(version_of) {
            Ok([major, minor]) => format!("NVRTC {major}.{minor}"),
            Err(_) => "without NVRTC".to_owned(),
        }
    }
}

/// The version of a compiler.
pub fn version_of(nvrtc: &Nvrtc) -> [i32; 2] {
    let mut version = [0; 2];
    let [major, minor] = &mut version;
    // SAFETY: NVRTC writes two numbers.
    unsafe { (nvrtc.version)(&raw mut *major, &raw mut *minor) };
    version
}

/// The version of a library of collective calls: major, minor and patch.
pub fn nccl_version(library: &Nccl) -> [i32; 3] {
    let mut version = 0;
    // SAFETY: NCCL writes a number.
    unsafe { (library.version)(&raw mut version) };
    [version / 10_000, version / 100 % 100, version % 100]
}

/// Opens CUDA's libraries, once for each process; `named` is a folder that is looked in first.
///
/// # Errors
/// `DEVICE` where the driver is missing, with where it was looked for and how to get it.
pub fn open(named: Option<&Path>) -> Result<Libraries> {
    static OPENED: Mutex<Vec<(Option<PathBuf>, Libraries)>> = Mutex::new(Vec::new());
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, found)) = opened.iter().find(|(folder, _)| folder.as_deref() == named) {
        return Ok(*found);
    }
    let places = Places::of_machine(named);
    let driver = table(&places, DRIVER_FILES, Driver::of);
    let driver = driver.map_err(|why| {
        let what = format!("the driver of NVIDIA cannot be used: {why}; {GET_DRIVER}");
        PluginError::new(ErrorCode::DEVICE, what)
    })?;
    let major = served(driver)? / 1000;
    let nvrtc = nvrtc(&places, major).map_err(|what| &*Box::leak(what.into_boxed_str()));
    let libraries = Libraries { driver, nvrtc };
    opened.push((named.map(Path::to_owned), libraries));
    Ok(libraries)
}

/// Opens cuBLASLt, once for each process, for a driver that serves major version `major` of CUDA;
/// `named` is a folder that is looked in instead of others.
pub fn open_cublaslt(named: Option<&Path>, major: i32) -> Opened<CublasLt> {
    static KNOWN: Known<CublasLt> = Mutex::new(Vec::new());
    once(&KNOWN, named, || {
        let files = CUBLASLT_FILES.iter().filter(|(_, needs)| *needs <= major);
        let files: Vec<&str> = files.map(|(file, _)| *file).collect();
        let opened = table(&Places::of_machine(named), &files, CublasLt::of);
        opened.map_err(|why| format!("cuBLASLt cannot be used: {why}; {GET_CUBLASLT}"))
    })
}

/// Opens NCCL, once for each process; `named` is a folder that is looked in instead of others.
pub fn open_nccl(named: Option<&Path>) -> Opened<Nccl> {
    static KNOWN: Known<Nccl> = Mutex::new(Vec::new());
    once(&KNOWN, named, || {
        let opened = table(&Places::of_machine(named), NCCL_FILES, Nccl::of);
        let opened = opened.and_then(|library| {
            let [major, minor, _] = nccl_version(library);
            if [major, minor] < LEAST_NCCL {
                let [least, of_it] = LEAST_NCCL;
                return Err(format!(
                    "it is version {major}.{minor}, expected {least}.{of_it} or later"
                ));
            }
            Ok(library)
        });
        opened.map_err(|why| format!("NCCL cannot be used: {why}; {GET_NCCL}"))
    })
}

/// What `open` finds, the same for each process and folder.
fn once<T>(
    known: &Known<T>,
    named: Option<&Path>,
    open: impl FnOnce() -> std::result::Result<&'static T, String>,
) -> Opened<T> {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, found)) = known.iter().find(|(folder, _)| folder.as_deref() == named) {
        return *found;
    }
    let found = open().map_err(|what| &*Box::leak(what.into_boxed_str()));
    known.push((named.map(Path::to_owned), found));
    found
}

/// Opens the compiler in `folder` alone.
///
/// # Errors
/// `DEVICE` where it is missing.
pub fn open_compiler(folder: &Path) -> Result<&'static Nvrtc> {
    nvrtc(&Places::of_machine(Some(folder)), i32::MAX)
        .map_err(|what| PluginError::new(ErrorCode::DEVICE, what))
}

/// The version of CUDA that the driver serves, 13000 for 13.0.
fn served(driver: &Driver) -> Result<i32> {
    let mut version = 0;
    // SAFETY: the driver writes a number, also before it is started.
    let code = unsafe { (driver.version)(&raw mut version) };
    let (major, minor) = (version / 1000, version % 1000 / 10);
    if code == 0 && version < LEAST_DRIVER {
        let what = format!(
            "the driver of NVIDIA is too old: it serves CUDA {major}.{minor}, expected {}.0 or later; update the driver",
            LEAST_DRIVER / 1000
        );
        return Err(PluginError::new(ErrorCode::DEVICE, what));
    }
    Ok(version)
}

/// Opens the newest compiler whose code a driver for CUDA `major` takes.
fn nvrtc(places: &Places, major: i32) -> std::result::Result<&'static Nvrtc, String> {
    let files = NVRTC_FILES.iter().filter(|(_, needs)| *needs <= major);
    let files: Vec<&str> = files.map(|(file, _)| *file).collect();
    let opened = table(places, &files, Nvrtc::of).and_then(|table| {
        let [of_it, minor] = version_of(table);
        if of_it > major {
            return Err(format!(
                "its version {of_it}.{minor} needs a driver for CUDA {of_it}, found one for {major}"
            ));
        }
        Ok(table)
    });
    opened.map_err(|why| {
        let (package, newer) = match major {
            ..13 => (
                "nvidia-cuda-nvrtc-cu12",
                " (the driver serves CUDA 12: newer compilers need a newer driver)",
            ),
            13.. => ("nvidia-cuda-nvrtc", ""),
        };
        let get = GET_NVRTC.replace("PACKAGE", package);
        format!("the compiler of kernels, NVRTC, cannot be used: {why}; {get}{newer}")
    })
}

/// The functions of the first of `files` that opens, which `of` finds; it stays open for ever.
fn table<T>(
    places: &Places,
    files: &[&str],
    of: fn(&Library) -> std::result::Result<T, &'static str>,
) -> std::result::Result<&'static T, String> {
    let library = load(places, files)?;
    let table = of(&library).map_err(|symbol| format!("it lacks `{symbol}`"))?;
    std::mem::forget(library);
    Ok(Box::leak(Box::new(table)))
}

/// Opens the first of `files` that there is: in a folder of `places`, or by its bare name where the
/// system has it.
fn load(places: &Places, files: &[&str]) -> std::result::Result<Library, String> {
    let mut refused = Vec::new();
    for file in files {
        for path in places.having(file) {
            open_beside(&path);
            // SAFETY: opening a library of CUDA runs its initialisers, which have no preconditions.
            match unsafe { Library::new(&path) } {
                Ok(library) => return Ok(library),
                Err(why) => refused.push(format!("{} cannot be opened: {why}", path.display())),
            }
        }
        if places.is_exclusive() {
            continue;
        }
        // SAFETY: as above.
        match unsafe { Library::new(*file) } {
            Ok(library) => return Ok(library),
            Err(_) => refused.push(format!("the system has no {file}")),
        }
    }
    if places.is_exclusive() && refused.is_empty() {
        refused.push(format!("{places} has no {}", files.join(" or ")));
    }
    Err(refused.join(", "))
}

/// Opens the libraries beside the compiler that it opens by bare names, so that it finds them.
fn open_beside(path: &Path) {
    let folder = path.parent().and_then(|folder| folder.read_dir().ok());
    for file in folder.into_iter().flatten().flatten() {
        if file
            .file_name()
            .to_string_lossy()
            .starts_with(NVRTC_BUILTINS)
        {
            // SAFETY: as in `load`. A failure is the compiler's to tell, when it misses the
            // library.
            if let Ok(library) = unsafe { Library::new(file.path()) } {
                std::mem::forget(library);
            }
        }
    }
}
