//! Packs a release build into one archive that runs without Rust, and into a wheel for Python.

mod licenses;
mod needs;
mod wheel;

use std::env::consts::{ARCH, OS};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::archive;
use crate::plugins;
use crate::workspace::{Workspace, run};

/// Repository paths that are copied unchanged into the archive: files, and folders with a final
/// `/`.
const AS_IT_IS: [&str; 6] = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "configs/",
    "docs/",
];
/// The program's other name, for machines that have a `host` of their own, such as that of bind9.
const OTHER_NAME: &str = "espalier";
/// Shells, and the files of their completions; a name of the program stands for `{}`.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/{}"),
    ("zsh", "zsh/site-functions/_{}"),
    ("fish", "fish/vendor_completions.d/{}.fish"),
];
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Options of `cargo xtask dist`.
#[derive(Args)]
pub struct DistOptions {
    /// Where to write the archive [default: the target directory's `dist`]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl DistOptions {
    /// Writes into `out`.
    pub fn into(out: PathBuf) -> Self {
        DistOptions { out: Some(out) }
    }
}

/// Builds host and plugins, collects the other files, and packs all; returns the wheel's path.
///
/// Equal contents have equal bytes: see [`archive::write`].
///
/// # Errors
/// Where the build or `strip` (of binutils) fails, or a file cannot be read or written.
pub fn pack(workspace: &Workspace, options: &DistOptions) -> Result<PathBuf> {
    let out = options
        .out
        .clone()
        .unwrap_or_else(|| workspace.target.join("dist"));
    let name = format!("espalier-{VERSION}-{ARCH}-{OS}");
    let stage = out.join(&name);
    if stage.exists() {
        fs::remove_dir_all(&stage).with_context(|| format!("cannot clear {}", stage.display()))?;
    }
    copy_sources(workspace, &stage)?;
    let programs = copy_programs(workspace, &stage)?;
    let needs = needs::of(&programs)?;
    std::os::unix::fs::symlink("host", stage.join(OTHER_NAME))
        .with_context(|| format!("cannot link {OTHER_NAME}"))?;
    write_share(&stage)?;
    write(&stage.join("INSTALL.txt"), &install_text(&needs))?;
    write(&stage.join("THIRD_PARTY.txt"), &licenses::text(workspace)?)?;

    let archive = out.join(format!("{name}.tar.gz"));
    archive::write(&archive, &stage, Path::new(&name))?;
    let wheel = wheel::write(&workspace.root, &programs[0], &out)?;
    fs::remove_dir_all(&stage).with_context(|| format!("cannot remove {}", stage.display()))?;
    println!("needs {}", needs.join(", "));
    println!("{}", wheel.display());
    println!("{}", archive.display());
    Ok(wheel)
}

fn copy_sources(workspace: &Workspace, stage: &Path) -> Result<()> {
    for file in workspace.files()? {
        let path = file.to_string_lossy();
        if AS_IT_IS
            .iter()
            .any(|name| *name == path || name.ends_with('/') && path.starts_with(name))
        {
            copy(&workspace.root.join(&file), &stage.join(&file))?;
        }
    }
    Ok(())
}

/// The host and the plugins' libraries, without the debug information.
fn copy_programs(workspace: &Workspace, stage: &Path) -> Result<Vec<PathBuf>> {
    run(workspace
        .cargo()
        .args(["build", "--release", "--quiet", "--bin", "host"]))?;
    let host = stage.join("host");
    copy(&workspace.target.join("release/host"), &host)?;
    let libraries = stage.join("plugins");
    plugins::gather(workspace, &plugins::PluginsOptions::into(libraries.clone()))?;

    let mut programs = vec![host];
    for entry in fs::read_dir(&libraries)? {
        programs.push(entry?.path());
    }
    programs.sort();
    for program in &programs {
        run(Command::new("strip").arg("--strip-debug").arg(program))
            .context("`strip` comes with binutils, which the C compiler needs too")?;
        fs::set_permissions(program, fs::Permissions::from_mode(0o755))?;
    }
    Ok(programs)
}

/// Completions and the manual, laid out as below `/usr/share`.
fn write_share(stage: &Path) -> Result<()> {
    let share = stage.join("share");
    for (shell, file) in COMPLETIONS {
        for name in ["host", OTHER_NAME] {
            let mut host = Command::new(stage.join("host"));
            host.args(["completions", shell, "--name", name]);
            let output = host.output().context("the packed host cannot be started")?;
            ensure!(
                output.status.success(),
                "{host:?} ended with {}",
                output.status
            );
            let path = share.join(file.replace("{}", name));
            let folder = path.parent().expect("a file has a parent folder");
            fs::create_dir_all(folder)
                .and_then(|()| fs::write(&path, &output.stdout))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    let mut host = Command::new(stage.join("host"));
    host.arg("manual").arg("--out").arg(share.join("man/man1"));
    run(host.stdout(Stdio::null()))
}

fn install_text(needs: &[String]) -> String {
    format!(
        "Espalier {VERSION} for {OS} on {ARCH}

Run it from this folder; nothing is installed and nothing else is needed:

    ./host doctor
    ./host plugins list
    ./host train --config configs/quickstart.toml

The wheel beside this archive is for Python: pip install ./FILE.whl.

`espalier` is the same program, for machines that have another `host`. share/ holds completions for bash,
zsh and fish, and the manual:

    man -M share/man host-train

With Rust at hand, a plugin of your own (docs/write-a-quantizer.md):

    ./host plugins new my-quantizer --kind quantizer

README.md says `cargo run --release --` where you write `./host`.

The plugins are linked into the host and are also in plugins/, the folder for third-party plugins too.
Of the system: a mounted /proc, {}.
THIRD_PARTY.txt holds the licences of the libraries inside.
",
        needs.join(", ")
    )
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let folder = to.parent().expect("a file has a parent folder");
    fs::create_dir_all(folder)
        .and_then(|()| fs::copy(from, to))
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
