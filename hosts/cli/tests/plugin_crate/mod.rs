//! A folder in which plugins are created and built like a third party's, with one shared target
//! directory.
#![allow(dead_code)] // Each test uses a part.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// An empty folder, and its shared target directory. Both paths are the same between runs, so that
/// build results are reused and do not accumulate.
pub struct Bench {
    pub folder: PathBuf,
    target: PathBuf,
}

impl Bench {
    /// The folder called `name`, emptied.
    pub fn new(name: &str) -> Self {
        let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let folder = scratch.join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder).expect("emptied");
        }
        fs::create_dir_all(&folder).expect("a folder");
        // The target directory of the sample plugins, which are the same libraries.
        let target = scratch.parent().expect("target/tmp").join("samples");
        Bench { folder, target }
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The directory of the built libraries.
    pub fn built(&self) -> PathBuf {
        self.target.join("release")
    }

    /// The program, in the folder.
    pub fn host(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_host"));
        command.current_dir(&self.folder);
        command.args(arguments.split_whitespace());
        command
    }

    /// Cargo in the folder's `inside`, with the shared target directory.
    pub fn cargo(&self, inside: &str, arguments: &str) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.current_dir(self.path(inside));
        command.args(arguments.split_whitespace());
        command.args(["--config", espalier_samples::UNOPTIMISED_INTERFACE]);
        command.env("CARGO_TARGET_DIR", &self.target);
        command
    }

    /// The shared target directory.
    pub fn target(&self) -> &Path {
        &self.target
    }
}

/// Runs it, expects success, and returns its standard output.
pub fn succeeded(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let printed = both(&output);
    assert!(output.status.success(), "{command:?}: {printed}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Both outputs, for messages.
pub fn both(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes))
        .join("\n")
}
