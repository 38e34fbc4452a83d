//! Links test binaries without the debug information of what they link: there are 50, which would
//! be 80 MB each instead of 18.
#![allow(clippy::print_stdout)] // What a build script tells cargo.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-tests=-Wl,-S");
}
