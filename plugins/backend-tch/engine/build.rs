//! The CUDA shim, compiled where libtorch has CUDA -> two files that the engine includes: the
//! shim's library, empty where there is none, and the reason why there is none.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// What the shim includes, beside the C++ library.
const HEADERS_OF_LIBTORCH: [&str; 2] = ["ATen/Context.h", "c10/cuda/CUDAStream.h"];
const HEADERS_OF_CUDA: [&str; 3] = ["cuda_runtime_api.h", "cuda.h", "crt/host_config.h"];

/// What the shim is linked with.
const LIBRARIES: [&str; 4] = ["torch_cuda", "c10_cuda", "torch_cpu", "c10"];

/// Folders of CUDA's headers.
const CUDA_FOLDERS: [&str; 2] = ["CUDA_HOME", "CUDA_PATH"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/cuda/shim.cpp");
    for name in CUDA_FOLDERS.iter().chain(&["LIBTORCH"]) {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let (shim, why) = match compiled(&out) {
        Ok(shim) => (shim, String::new()),
        Err(why) => (Vec::new(), why),
    };
    if !why.is_empty() {
        println!("cargo::warning=the engine is built without CUDA: {why}");
    }
    fs::write(out.join("cuda_shim.so"), shim).expect("cargo's folder can be written");
    fs::write(out.join("no_cuda.txt"), why).expect("cargo's folder can be written");
}

/// The bytes of the shim, or why there is none.
fn compiled(out: &Path) -> Result<Vec<u8>, String> {
    let libtorch = env::var_os("LIBTORCH").filter(|folder| !folder.is_empty());
    let libtorch = PathBuf::from(libtorch.ok_or("LIBTORCH was not set when it was built")?);
    let lib = libtorch.join("lib");
    for library in LIBRARIES {
        let file = lib.join(format!("lib{library}.so"));
        println!("cargo::rerun-if-changed={}", file.display());
        if !file.is_file() {
            return Err(format!("{} does not exist", file.display()));
        }
    }
    let torch = libtorch.join("include");
    has(&torch, &HEADERS_OF_LIBTORCH)?;
    let cuda = cuda_headers(&libtorch)?;
    let shim = out.join("shim.partial.so");
    let compiler = cc::Build::new()
        .cpp(true)
        .cargo_metadata(false)
        .try_get_compiler()
        .map_err(|error| format!("no C++ compiler: {error}"))?;
    let mut command: Command = compiler.to_command();
    command
        .args(["-std=c++17", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra"])
        .arg("-isystem")
        .arg(&torch)
        .arg("-isystem")
        .arg(cuda)
        .args(["src/cuda/shim.cpp", "-o"])
        .arg(&shim)
        .arg("-L")
        .arg(&lib)
        // The linker would leave out libtorch_cuda.so, whose initialisers the shim needs. What
        // these libraries need themselves may be on another machine.
        .args(["-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined"])
        .args(LIBRARIES.map(|library| format!("-l{library}")));
    let done = command.output();
    let done = done.map_err(|error| format!("the C++ compiler cannot be run: {error}"))?;
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    if !done.status.success() {
        let line = text.lines().find(|line| line.contains("error"));
        let line = line.unwrap_or("no message");
        return Err(format!("the shim does not compile: {line}"));
    }
    for line in text.lines().filter(|line| line.contains("warning")) {
        println!("cargo::warning={line}");
    }
    fs::read(&shim).map_err(|error| format!("{}: {error}", shim.display()))
}

/// The folder of CUDA's headers: of a toolkit that the environment names, of the packages of PyPI
/// beside libtorch, or of the system's toolkit.
fn cuda_headers(libtorch: &Path) -> Result<PathBuf, String> {
    let named = CUDA_FOLDERS.iter().filter_map(env::var_os);
    let named = named.map(|folder| PathBuf::from(folder).join("include"));
    let folders: Vec<PathBuf> = named
        .chain([
            libtorch.join("../nvidia/cu13/include"),
            PathBuf::from("/usr/local/cuda/include"),
        ])
        .collect();
    let found = folders
        .iter()
        .find(|folder| has(folder, &HEADERS_OF_CUDA).is_ok());
    found.cloned().ok_or_else(|| {
        let looked = folders.iter().map(|folder| folder.display().to_string());
        let looked = looked.collect::<Vec<_>>().join(", ");
        format!(
            "no folder with {} among {looked}: set CUDA_HOME to a CUDA toolkit of libtorch's \
             version, or install the packages nvidia-cuda-runtime and nvidia-cuda-crt of PyPI beside \
             libtorch",
            HEADERS_OF_CUDA.join(", ")
        )
    })
}

fn has(folder: &Path, files: &[&str]) -> Result<(), String> {
    match files.iter().find(|file| !folder.join(file).is_file()) {
        None => Ok(()),
        Some(file) => Err(format!("{} does not exist", folder.join(file).display())),
    }
}
