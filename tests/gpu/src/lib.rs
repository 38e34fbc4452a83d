//! The backend `cuda` without a card: a driver and a compiler of the host's own, under the names of
//! NVIDIA's libraries.
//!
//! `mock/cuda.cpp` is a `libcuda` whose streams are queues, `mock/nvrtc.cpp` an `libnvrtc` that
//! compiles kernels for `emulator/emulator.h`, a model of a GPU, with the machine's C++ compiler,
//! `mock/cublaslt.cpp` a `libcublasLt` that multiplies on the host, `mock/nccl.cpp` a `libnccl`
//! whose members are threads, or processes that meet in files.
//! The backend itself is what runs on a card, unmodified.

mod compiled;
mod disassembled;
mod emulated;
mod launched;
mod llama;
pub mod nccl;
mod step_formats;
pub mod third_party;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use espalier_interface::Options;
use espalier_system::files::hash_bytes;

pub use compiled::{
    ARCHITECTURES, Record, format, formats, instructions, nvrtc, quantizers, records, ship, shipped,
};
pub use disassembled::Instructions;
pub use emulated::{ALL_TRAININGS, CASES, Case, ORDERS};
pub use launched::launched;
pub use llama::Llama;
pub use step_formats::{StepFormat, numbers, step_formats, words};

/// The mock libraries: their sources, and the names under which the backend opens them.
const LIBRARIES: [(&str, &str); 4] = [
    ("cuda.cpp", "libcuda.so.1"),
    ("nvrtc.cpp", "libnvrtc.so.13"),
    ("cublaslt.cpp", "libcublasLt.so.13"),
    ("nccl.cpp", "libnccl.so.2"),
];

/// The compiler of the mocks.
fn compiler() -> String {
    std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned())
}

/// The folder of the mock libraries, built into `folder` once for their sources.
///
/// # Panics
/// Where they cannot be built, with the compiler's words.
pub fn libraries(folder: &Path) -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let built = folder.join(format!("mock-cuda-{}", sources()));
        if !built.exists() {
            let making = folder.join(format!("mock-cuda-{}", std::process::id()));
            build_libraries(&making);
            // Another process may have been faster.
            if std::fs::rename(&making, &built).is_err() {
                assert!(built.exists(), "cannot make {}", built.display());
                std::fs::remove_dir_all(&making).expect("removed");
            }
        }
        built
    })
}

/// Where kernels are kept that the mock compiler compiled, beside the libraries in `folder`.
///
/// # Panics
/// Where the libraries cannot be built.
pub fn kernels(folder: &Path) -> PathBuf {
    libraries(folder).join("kernels")
}

/// A name for the sources of the mock libraries and their compiler.
fn sources() -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = LIBRARIES.map(|(file, _)| source.join("mock").join(file));
    let emulator = source.join("emulator/emulator.h");
    let mut all = compiler().into_bytes();
    for file in files.iter().chain([&emulator]) {
        all.extend(std::fs::read(file).expect("a source"));
    }
    hash_bytes(&all)[..16].to_owned()
}

/// Builds the mock libraries into `folder`.
///
/// # Panics
/// Where they cannot be built, with the compiler's words.
pub fn build_libraries(folder: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::create_dir_all(folder).expect("a folder for the mock libraries");
    std::thread::scope(|scope| {
        for (file, library) in LIBRARIES {
            scope.spawn(move || build_library(source, file, &folder.join(library)));
        }
    });
}

fn build_library(source: &Path, file: &str, library: &Path) {
    let emulator = format!("-DEMULATOR=\"{}\"", source.join("emulator").display());
    // The library of products finds the driver by its name, as NVIDIA's does.
    let name = library.file_name().expect("a name").to_string_lossy();
    let name = format!("-Wl,-soname,{name}");
    let built = Command::new(compiler())
        .args(["-std=c++17", "-O1", "-fPIC", "-shared", &emulator, &name])
        .arg("-o")
        .arg(library)
        .arg(source.join("mock").join(file))
        .arg("-ldl")
        .output()
        .expect("a C++ compiler, `c++` or CXX");
    let words = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{file}: {words}");
}

/// Options of the backend that open the mock libraries and keep compiled kernels below `folder`,
/// for products of a kind.
pub fn options(folder: &Path, products: &str) -> Options {
    options_of(libraries(folder), &kernels(folder), products)
}

/// Options of the backend that open the mock libraries of a folder and keep compiled kernels in
/// another, for products of a kind.
pub fn options_of(libraries: &Path, cache: &Path, products: &str) -> Options {
    let options = serde_json::json!({
        "libraries": libraries,
        "cache_dir": cache,
        "products": products,
    });
    serde_json::from_value(options).expect("a table")
}
