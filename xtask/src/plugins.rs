//! Turns the shipped plugin crates into one folder of shared libraries under their plugin names.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::workspace::{Workspace, run};

/// Options of `cargo xtask plugins`.
#[derive(Args)]
pub struct Options {
    /// Where to gather the libraries [default: the target directory's `plugins`]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Options {
    /// Gathers into `out`.
    pub fn into(out: PathBuf) -> Self {
        Options { out: Some(out) }
    }
}

/// Builds all plugins in release and copies `lib<plugin>.so` into the folder.
///
/// # Errors
/// Where the build fails, a plugin builds no shared library, or the folder cannot be written.
pub fn gather(workspace: &Workspace, options: &Options) -> Result<()> {
    let out = options
        .out
        .clone()
        .unwrap_or_else(|| workspace.target.join("plugins"));
    let mut build = workspace.cargo();
    build.args(["build", "--release", "--quiet"]);
    for plugin in workspace.plugins() {
        if plugin.shared_library.is_none() {
            bail!(
                "{} builds no shared library: add \"cdylib\" to its crate-type",
                plugin.name
            );
        }
        build.args(["--package", &plugin.name]);
    }
    run(&mut build)?;

    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    for plugin in workspace.plugins() {
        let stem = plugin
            .shared_library
            .as_deref()
            .expect("checked before the build");
        let built = workspace
            .target
            .join(format!("release/{DLL_PREFIX}{stem}{DLL_SUFFIX}"));
        let name = format!("{DLL_PREFIX}{}{DLL_SUFFIX}", plugin.plugin_name());
        // A host may have the old file mapped: replace it, never write into it.
        let partial = out.join(format!("{name}.partial"));
        let gathered = out.join(&name);
        fs::copy(&built, &partial)
            .and_then(|_| fs::rename(&partial, &gathered))
            .with_context(|| {
                format!("cannot copy {} to {}", built.display(), gathered.display())
            })?;
        println!("{}", gathered.display());
    }
    Ok(())
}
