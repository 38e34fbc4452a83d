//! The output of `cargo metadata` -> the facts about the workspace that the tasks need.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The workspace, from `cargo metadata`.
pub struct Workspace {
    /// The folder of the workspace's `Cargo.toml`.
    pub root: PathBuf,
    /// Where cargo builds.
    pub target: PathBuf,
    /// The members.
    pub packages: Vec<Package>,
}

/// One member of the workspace.
pub struct Package {
    /// As in its `Cargo.toml`, for example `espalier-nf4`.
    pub name: String,
    /// Its folder relative to the root, for example `plugins/nf4`.
    pub folder: PathBuf,
    /// The stem of its shared library, where it builds one, for example `espalier_nf4`.
    pub shared_library: Option<String>,
}

impl Workspace {
    /// Reads the workspace from cargo.
    ///
    /// # Errors
    /// Where cargo cannot read the workspace.
    pub fn load() -> Result<Self> {
        let metadata = metadata(cargo(), &["--no-deps"])?;
        let root = PathBuf::from(text(&metadata["workspace_root"])?);
        let packages = metadata["packages"]
            .as_array()
            .context("cargo metadata lists no packages")?
            .iter()
            .map(|package| Package::read(&root, package))
            .collect::<Result<_>>()?;
        Ok(Self {
            target: PathBuf::from(text(&metadata["target_directory"])?),
            root,
            packages,
        })
    }

    /// What `cargo metadata` prints in the root with `arguments`.
    ///
    /// # Errors
    /// Where cargo cannot read the workspace.
    pub fn metadata(&self, arguments: &[&str]) -> Result<Value> {
        metadata(self.cargo(), arguments)
    }

    /// A cargo command in the root.
    pub fn cargo(&self) -> Command {
        let mut command = cargo();
        command.current_dir(&self.root);
        command
    }

    /// The packages below `plugins/`.
    pub fn plugins(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .iter()
            .filter(|package| package.folder.starts_with("plugins"))
    }

    /// Builds a plugin of `tests/plugins` as its author does, and copies its library into `folder`.
    ///
    /// # Errors
    /// Where it cannot be built or copied.
    pub fn put_sample(&self, name: &str, folder: &Path) -> Result<()> {
        let samples = self.target.join("samples");
        run(cargo()
            .current_dir(self.root.join("tests/plugins"))
            .args(["build", "--release", "--quiet", "--locked"])
            .args(["--package", name, "--lib", "--target-dir"])
            .arg(&samples))?;
        let library = format!("lib{}.so", name.replace('-', "_"));
        fs::copy(samples.join("release").join(&library), folder.join(library))
            .with_context(|| format!("no library of `{name}` in {}", folder.display()))?;
        Ok(())
    }

    /// All files that git tracks or would add, relative to the root.
    ///
    /// # Errors
    /// Where git cannot list them.
    pub fn files(&self) -> Result<Vec<PathBuf>> {
        let output = Command::new("git")
            .current_dir(&self.root)
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .output()
            .context("cannot run git")?;
        if !output.status.success() {
            bail!(
                "git ls-files failed: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let names = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
        let files = names.split_terminator('\0').map(PathBuf::from);
        Ok(files
            .filter(|file| self.root.join(file).is_file())
            .collect())
    }
}

impl Package {
    fn read(root: &Path, package: &Value) -> Result<Self> {
        let manifest = PathBuf::from(text(&package["manifest_path"])?);
        let folder = manifest
            .parent()
            .and_then(|folder| folder.strip_prefix(root).ok())
            .with_context(|| format!("{} is outside the workspace", manifest.display()))?;
        let targets = package["targets"]
            .as_array()
            .context("a package without targets")?;
        let is_shared = |target: &&Value| {
            target["kind"]
                .as_array()
                .is_some_and(|kinds| kinds.iter().any(|kind| kind == "cdylib"))
        };
        let shared_library = targets
            .iter()
            .find(is_shared)
            .map(|target| text(&target["name"]).map(|name| name.replace('-', "_")))
            .transpose()?;
        let name = text(&package["name"])?.to_owned();
        Ok(Self {
            name,
            folder: folder.to_owned(),
            shared_library,
        })
    }

    /// The user-visible name of a plugin's library: the package's without the project's.
    pub fn plugin_name(&self) -> &str {
        self.name.strip_prefix("espalier-").unwrap_or(&self.name)
    }
}

/// Runs a command with its output on the terminal.
///
/// # Errors
/// Where it cannot be started or fails; the message names it.
pub fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let arguments: Vec<_> = command
        .get_args()
        .map(|part| part.to_string_lossy())
        .collect();
    let line = format!("{name} {}", arguments.join(" "));
    let status = command
        .status()
        .with_context(|| format!("cannot run `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed with {status}");
    }
    Ok(())
}

fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// What `cargo metadata` prints with `arguments`.
fn metadata(mut cargo: Command, arguments: &[&str]) -> Result<Value> {
    let output = cargo
        .args(["metadata", "--format-version", "1"])
        .args(arguments)
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!(
            "cargo metadata failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The text in a JSON value of cargo.
///
/// # Errors
/// Where it is not a text.
pub fn text(value: &Value) -> Result<&str> {
    value
        .as_str()
        .context("cargo metadata has an unexpected form")
}
