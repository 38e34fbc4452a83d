//! Folders of plugin libraries -> the program's result.
#![allow(dead_code)] // Each test uses a part.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use espalier_samples::put;
use espalier_torture::training::last_line;
use serde_json::Value as Json;

/// A folder of libraries and a user's data directory.
pub struct Libraries(pub tempfile::TempDir);

impl Libraries {
    /// An empty one.
    pub fn new() -> Self {
        Libraries(tempfile::tempdir().expect("a folder"))
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Puts a library into the folder `folder`.
    pub fn put(&self, folder: &str, name: &str, bytes: &[u8]) -> PathBuf {
        fs::create_dir_all(self.path(folder)).expect("a folder");
        let path = self.path(folder).join(format!("lib{name}.so"));
        put(&path, bytes);
        path
    }

    /// The program with `arguments`, and the libraries of `folder`.
    pub fn host(&self, folder: &str, arguments: &str) -> Output {
        let mut host = Command::new(env!("CARGO_BIN_EXE_host"));
        host.env("XDG_DATA_HOME", self.path("data"))
            .current_dir(self.0.path())
            .args(arguments.split_whitespace())
            .arg("--plugin-dir")
            .arg(self.path(folder));
        host.output().expect("the host starts")
    }

    /// Generates with the quantizer `name`: the shortest command that names it.
    pub fn names(&self, folder: &str, name: &str, more: &str) -> Output {
        let model = golden();
        let words = format!(
            "generate --threads 1 --plugins {name} --model {} --prompt a --max-tokens 1 {more}",
            model.display()
        );
        self.host(folder, &words)
    }

    /// The output of `plugins list` as JSON: each library's file name and its components' entries.
    pub fn listed(&self, folder: &str, more: &str) -> Vec<Json> {
        let output = self.host(folder, &format!("plugins list --json {more}"));
        assert_eq!(output.status.code(), Some(0), "{}", last_line(&output));
        let value: Json = serde_json::from_slice(&output.stdout).expect("JSON");
        value["components"].as_array().expect("a list").clone()
    }
}

/// A trained model.
pub fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/llama/tiny-trained")
}
