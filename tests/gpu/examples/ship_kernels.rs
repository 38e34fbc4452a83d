//! `ship_kernels NVRTC ARCH FOLDER`: compiles every kernel with the NVRTC in a folder for cards of
//! one kind, such as `sm_90`, into a folder that `backend.cuda.kernels` may name.
#![allow(clippy::print_stdout)] // A developer's tool prints.

use std::error::Error;
use std::path::Path;
use std::{env, thread};

use espalier_tests_gpu::{ARCHITECTURES, ship};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [nvrtc, architecture, folder] = &arguments[..] else {
        return Err("expected: ship_kernels NVRTC ARCH FOLDER".into());
    };
    let named = ARCHITECTURES.map(|[major, minor]| format!("sm_{major}{minor}"));
    let index = named.iter().position(|name| name == architecture);
    let index = index.ok_or_else(|| {
        let named = named.join(", ");
        format!("expected one of {named}, found `{architecture}`")
    })?;
    let threads = thread::available_parallelism()?.get();
    let (nvrtc, folder) = (Path::new(nvrtc), Path::new(folder));
    let count = ship(nvrtc, ARCHITECTURES[index], folder, threads)?;
    println!("{count} compiled sources for {architecture}");
    Ok(())
}
