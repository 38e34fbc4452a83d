//! The shipped plugin crates -> one folder of shared libraries under their plugin names.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::workspace::{Workspace, run};

/// Options of `cargo xtask plugins`.
#[derive(Args)]
pub struct PluginsOptions {
    /// Where to gather the libraries [default: the target directory's `plugins`]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Build the collective `mpi`, too; that needs the site's MPI (`mpicc`) and libclang
    #[arg(long)]
    mpi: bool,
}

impl PluginsOptions {
    /// Gathers into `out`.
    pub fn into(out: PathBuf) -> Self {
        PluginsOptions {
            out: Some(out),
            mpi: false,
        }
    }
}

/// Builds all plugins in release and copies `lib<plugin>.so` into the folder.
///
/// # Errors
/// Where the build fails, a plugin builds no shared library, or the folder cannot be written.
pub fn gather(workspace: &Workspace, options: &PluginsOptions) -> Result<()> {
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
        put(&built, &out, plugin.plugin_name())?;
    }
    if options.mpi {
        put(&build_mpi(workspace)?, &out, "collective-mpi")
    } else {
        Ok(())
    }
}

/// Builds the collective `mpi`, which is a separate workspace.
fn build_mpi(workspace: &Workspace) -> Result<PathBuf> {
    let target = workspace.target.join("mpi");
    let mut build = workspace.cargo();
    build.args(["build", "--release", "--quiet", "--locked"]);
    build.args(["--manifest-path", "plugins/collective-mpi/Cargo.toml"]);
    build.arg("--target-dir").arg(&target);
    run(&mut build).context("the collective `mpi` needs an MPI (mpicc) and libclang")?;
    Ok(target.join(format!(
        "release/{DLL_PREFIX}espalier_collective_mpi{DLL_SUFFIX}"
    )))
}

/// Copies a library into the folder under its plugin's name.
fn put(built: &Path, out: &Path, plugin: &str) -> Result<()> {
    let name = format!("{DLL_PREFIX}{plugin}{DLL_SUFFIX}");
    // A host may have the old file mapped: replace it, never write into it.
    let partial = out.join(format!("{name}.partial"));
    let gathered = out.join(&name);
    fs::copy(built, &partial)
        .and_then(|_| fs::rename(&partial, &gathered))
        .with_context(|| format!("cannot copy {} to {}", built.display(), gathered.display()))?;
    println!("{}", gathered.display());
    Ok(())
}
