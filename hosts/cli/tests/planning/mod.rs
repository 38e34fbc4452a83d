//! `host plan` on the backend `null`, which computes nothing, run in the folder of the configs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use espalier_samples::{library, put};
use serde_json::Value as Json;

/// The repository.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A folder with the library of `null`.
fn plugins() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("planning");
        std::fs::create_dir_all(&folder).expect("a folder");
        let null = std::fs::read(library("null")).expect("just built");
        put(&folder.join("libnull.so"), &null);
        folder
    })
}

/// Runs `host plan` with these arguments.
pub fn plan(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_host"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("HOST__")) {
        command.env_remove(name);
    }
    let command = command.current_dir(root()).args(["plan", "--threads", "1"]);
    let command = command
        .args(["--backend", "null", "--plugin-dir"])
        .arg(plugins());
    let command = command.args(words.split_whitespace());
    command.output().expect("the program starts")
}

/// Its output as JSON.
pub fn json(words: &str) -> Json {
    let output = plan(&format!("{words} --json"));
    let error = String::from_utf8_lossy(&output.stderr);
    let plan: Json = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{words}: no JSON: {error}"));
    let code = if plan["fits"] == false { 8 } else { 0 };
    assert_eq!(output.status.code(), Some(code), "{words}: {error}");
    plan
}
