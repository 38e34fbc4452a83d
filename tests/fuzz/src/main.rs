//! Bytes of libFuzzer -> the reader of such bytes in the program: one target of many, named in
//! `ESPALIER_FUZZ_TARGET`.
//!
//! A target may refuse its input. It must not panic, take long, use much memory, or access memory
//! outside its own.
#![no_main]

mod model;
mod packed;
mod place;
mod rows;
mod run;
mod tensors;

use std::env;
use std::process;
use std::sync::OnceLock;

use espalier_shipped as _;
use libfuzzer_sys::fuzz_target;

/// A function that reads an input.
type Target = fn(&[u8]);

/// Every target by its name; `cargo xtask fuzz` reads the names from the folders of `corpus`.
const TARGETS: [(&str, Target); 12] = [
    ("adapter", model::adapter),
    ("chat-template", rows::chat_template),
    ("checkpoint", run::checkpoint),
    ("format", packed::format),
    ("model-config", model::config),
    ("parquet", rows::parquet),
    ("quantizer", packed::quantizer),
    ("rows", rows::rows),
    ("run-config", run::config),
    ("safetensors", tensors::safetensors),
    ("shard-index", tensors::shard_index),
    ("tokenizer", model::tokenizer),
];

fuzz_target!(init: initialize(), |data: &[u8]| target()(data));

/// Renders chat templates if this program was started for that, like `host`.
fn initialize() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments == ["data", "render"] {
        let served = espalier_data::serve_templates();
        process::exit(i32::from(served.is_err()));
    }
    let program = env::current_exe().expect("this program has a path");
    espalier_data::render_templates_with(program);
}

fn target() -> Target {
    static CHOSEN: OnceLock<Target> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let asked = env::var("ESPALIER_FUZZ_TARGET").unwrap_or_default();
        let found = TARGETS.iter().find(|(name, _)| *name == asked);
        let names = TARGETS.map(|(name, _)| name).join(", ");
        let (_, target) = found.unwrap_or_else(|| {
            panic!("ESPALIER_FUZZ_TARGET is `{asked}`; expected one of {names}")
        });
        *target
    })
}
