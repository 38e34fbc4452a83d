//! A tensor library -> the plugin of the backend on it, built.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::libtorch;
use crate::workspace::{Workspace, run};

/// A library that a backend computes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Library {
    /// libtorch, by tch.
    Tch,
    /// candle-core.
    Candle,
}

impl Library {
    /// All of them.
    pub const ALL: [Library; 2] = [Library::Tch, Library::Candle];

    /// The folder of its workspace, relative to the root.
    fn workspace(self) -> String {
        format!("plugins/backend-{self}")
    }

    /// The plugin's file.
    pub fn file(self) -> String {
        format!("{DLL_PREFIX}backend-{self}{DLL_SUFFIX}")
    }

    /// A cargo command in its workspace, with a target directory of its own.
    fn cargo(self, workspace: &Workspace, words: &[&str]) -> Result<Command> {
        let manifest = format!("{}/Cargo.toml", self.workspace());
        ensure!(
            workspace.root.join(&manifest).is_file(),
            "{manifest} does not exist: this checkout has no backend `{self}`"
        );
        let mut cargo = workspace.cargo();
        cargo.args(words);
        cargo.args(["--release", "--locked", "--manifest-path", &manifest]);
        cargo.arg("--target-dir").arg(self.target(workspace));
        if self == Library::Tch {
            cargo.env("LIBTORCH", libtorch::find(workspace)?);
            cargo.env_remove("LIBTORCH_USE_PYTORCH");
        }
        Ok(cargo)
    }

    fn target(self, workspace: &Workspace) -> PathBuf {
        workspace.target.join(self.to_string())
    }

    fn built(self, workspace: &Workspace, stem: &str) -> PathBuf {
        let name = format!("release/{DLL_PREFIX}{stem}{DLL_SUFFIX}");
        self.target(workspace).join(name)
    }

    /// Builds the plugin.
    ///
    /// # Errors
    /// Where libtorch is missing or the build fails.
    fn build(self, workspace: &Workspace) -> Result<PathBuf> {
        let quiet = ["build", "--quiet", "--package"];
        let plugin = format!("espalier-backend-{self}");
        let mut build = self.cargo(workspace, &[&quiet[..], &[&plugin]].concat())?;
        if self == Library::Tch {
            let engine = "espalier-tch-engine";
            run(&mut self.cargo(workspace, &[&quiet[..], &[engine]].concat())?)?;
            build.env(
                "ESPALIER_TCH_ENGINE",
                self.built(workspace, "espalier_tch_engine"),
            );
        }
        run(&mut build)?;
        Ok(self.built(workspace, &plugin.replace('-', "_")))
    }

    /// The command that runs its tests.
    ///
    /// # Errors
    /// Where libtorch is missing.
    pub fn tests(self, workspace: &Workspace) -> Result<Command> {
        let mut tests = self.cargo(workspace, &["test", "--workspace"])?;
        if self == Library::Tch {
            // Tests are linked with the engine, and not opened after libtorch as the plugin is.
            tests.env("LD_LIBRARY_PATH", libtorch::find(workspace)?.join("lib"));
            tests.env(
                "ESPALIER_TCH_ENGINE",
                self.built(workspace, "espalier_tch_engine"),
            );
        }
        Ok(tests)
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Library::Tch => "tch",
            Library::Candle => "candle",
        })
    }
}

/// Builds the plugins and gathers them in the target directory's `backends`. Returns the folder.
///
/// # Errors
/// Where libtorch is missing, a build fails, or the folder cannot be written.
pub fn build_all(workspace: &Workspace, libraries: &[Library]) -> Result<PathBuf> {
    let out = workspace.target.join("backends");
    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    for &library in libraries {
        let built = library.build(workspace)?;
        put(&built, &out.join(library.file()))?;
    }
    Ok(out)
}

/// Copies a library. A host may have the old file mapped, so it is replaced and not written into.
fn put(built: &Path, to: &Path) -> Result<()> {
    let partial = to.with_extension("partial");
    fs::copy(built, &partial)
        .and_then(|_| fs::rename(&partial, to))
        .with_context(|| format!("cannot copy {} to {}", built.display(), to.display()))?;
    println!("{}", to.display());
    Ok(())
}
