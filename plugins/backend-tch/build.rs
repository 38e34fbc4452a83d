//! The engine's library, named by `ESPALIER_TCH_ENGINE` -> a file that the plugin includes. An
//! empty file where the variable is not set.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-env-changed=ESPALIER_TCH_ENGINE");
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("engine.so");
    let bytes = match env::var_os("ESPALIER_TCH_ENGINE") {
        None => Vec::new(),
        Some(engine) => {
            let engine = PathBuf::from(engine);
            println!("cargo::rerun-if-changed={}", engine.display());
            let read = fs::read(&engine);
            read.unwrap_or_else(|error| {
                panic!("ESPALIER_TCH_ENGINE: {}: {error}", engine.display())
            })
        }
    };
    fs::write(out, bytes).expect("cargo's folder can be written");
}
