//! The interface's sources -> an archive that tests build plugins from after later changes of the
//! interface.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::archive;
use crate::workspace::Workspace;

const INTERFACE: &str = "core/interface";

/// Writes `tests/golden/abi/interface-VERSION.tar.gz`: the crate, and a workspace with the crate as
/// its only member.
///
/// # Errors
/// Where that version is already kept, or a file cannot be read or written.
pub fn sources(workspace: &Workspace, version: &str) -> Result<PathBuf> {
    let name = format!("interface-{version}");
    let archive = Path::new("tests/golden/abi").join(format!("{name}.tar.gz"));
    let path = workspace.root.join(&archive);
    if path.exists() {
        bail!(
            "{} is kept already; a version that was kept never changes",
            archive.display()
        );
    }
    let folder = workspace.target.join("kept").join(&name);
    let copy = |file: &Path, content: &[u8]| -> Result<()> {
        let to = folder.join(file);
        fs::create_dir_all(to.parent().expect("inside the folder"))?;
        fs::write(&to, content).with_context(|| format!("cannot write {}", to.display()))
    };
    let _ = fs::remove_dir_all(&folder);
    let files = workspace.files()?;
    for file in files.iter().filter(|file| file.starts_with(INTERFACE)) {
        copy(file, &fs::read(workspace.root.join(file))?)?;
    }
    let manifest = fs::read_to_string(workspace.root.join("Cargo.toml"))?;
    copy(Path::new("Cargo.toml"), alone(&manifest)?.as_bytes())?;
    fs::create_dir_all(path.parent().expect("inside the root"))?;
    archive::write(&path, &folder, Path::new(&name))?;
    Ok(archive)
}

/// The workspace's manifest with the interface as its only member.
fn alone(manifest: &str) -> Result<String> {
    let shared = manifest
        .find("[workspace.package]")
        .context("no [workspace.package]")?;
    let shared = &manifest[shared..];
    Ok(format!(
        "[workspace]\nresolver = \"3\"\nmembers = [\"{INTERFACE}\"]\n\n{shared}"
    ))
}
