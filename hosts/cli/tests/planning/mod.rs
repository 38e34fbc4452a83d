//! `host plan`, run in the folder of the configs.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value as Json;

/// The repository.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Runs `host plan` with these arguments.
pub fn plan(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_host"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("HOST__")) {
        command.env_remove(name);
    }
    let command = command.current_dir(root()).args(["plan", "--threads", "1"]);
    let command = command.args(words.split_whitespace());
    command.output().expect("the program starts")
}

/// Its output as JSON.
pub fn json(words: &str) -> Json {
    let output = plan(&format!("{words} --json"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {error}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}
