//! Cargo's graph of dependencies -> the licences of all code in the programs.

use std::collections::{BTreeMap, BTreeSet};
use std::env::consts::ARCH;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::workspace::{self, Workspace};

/// Most levels of folders below a crate in which licences of bundled C code are searched.
const MOST_DEPTH: usize = 2;

const PREFACE: &str = "\
Libraries inside the programs of this archive

The table names every crate that cargo resolves for the host and the plugins on this platform, with
the licence that the crate declares; build scripts, procedural macros and tests are not inside and
not listed. A crate whose feature is off may be listed although none of its code is inside. Below
are the licence files of the crates (also those of C code that they bundle), equal texts once. Rust's
standard library, which is also inside, is licensed MIT OR Apache-2.0:
https://github.com/rust-lang/rust.
";

struct Crate {
    name: String,
    license: String,
    repository: String,
    /// File name and text.
    files: Vec<(String, String)>,
}

/// The table of crates and their licence texts.
///
/// # Errors
/// Where cargo cannot resolve the workspace or a licence file cannot be read.
pub fn text(workspace: &Workspace) -> Result<String> {
    let metadata = metadata(workspace)?;
    let inside = inside(workspace, &metadata)?;
    let mut crates = Vec::new();
    for package in list(&metadata["packages"])? {
        let is_ours = package["source"].is_null();
        if inside.contains(workspace::text(&package["id"])?) && !is_ours && !is_macro(package)? {
            crates.push(Crate::read(package)?);
        }
    }
    crates.sort_by(|a, b| a.name.cmp(&b.name));
    render(&crates)
}

fn render(crates: &[Crate]) -> Result<String> {
    let mut text = format!("{PREFACE}\n");
    for part in crates {
        writeln!(text, "{}  {}  {}", part.name, part.license, part.repository)?;
    }
    let without = crates.iter().filter(|part| part.files.is_empty());
    let without: Vec<_> = without.map(|part| part.name.as_str()).collect();
    if !without.is_empty() {
        writeln!(text, "\nWithout a licence file: {}", without.join(", "))?;
    }
    let mut users: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for part in crates {
        for (file, content) in &part.files {
            let user = format!("{} ({file})", part.name);
            users.entry(content).or_default().push(user);
        }
    }
    let mut texts: Vec<_> = users.into_iter().collect();
    texts.sort_by(|a, b| a.1.cmp(&b.1));
    for (content, users) in texts {
        let line = "-".repeat(100);
        write!(
            text,
            "\n{line}\n{}\n{line}\n\n{content}\n",
            users.join(", ")
        )?;
    }
    Ok(text)
}

fn metadata(workspace: &Workspace) -> Result<Value> {
    let platform = format!("{ARCH}-unknown-linux-gnu");
    workspace.metadata(&["--locked", "--filter-platform", &platform])
}

/// The ids of all packages that the host and the plugins link, including their own.
fn inside(workspace: &Workspace, metadata: &Value) -> Result<BTreeSet<String>> {
    let mut normal: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in list(&metadata["resolve"]["nodes"])? {
        let linked = normal.entry(workspace::text(&node["id"])?).or_default();
        for dependency in list(&node["deps"])? {
            let kinds = list(&dependency["dep_kinds"])?;
            if kinds.iter().any(|kind| kind["kind"].is_null()) {
                linked.push(workspace::text(&dependency["pkg"])?);
            }
        }
    }
    let mut macros = BTreeSet::new();
    let mut open = Vec::new();
    for package in list(&metadata["packages"])? {
        let id = workspace::text(&package["id"])?;
        let is_plugin = workspace
            .plugins()
            .any(|plugin| plugin.name == package["name"]);
        if is_macro(package)? {
            macros.insert(id);
        } else if is_plugin || package["name"] == "espalier-cli" {
            open.push(id);
        }
    }
    let mut inside = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !macros.contains(id) && inside.insert(id.to_owned()) {
            open.extend(normal.get(id).into_iter().flatten());
        }
    }
    Ok(inside)
}

fn is_macro(package: &Value) -> Result<bool> {
    let is_macro = |target: &Value| {
        target["kind"]
            .as_array()
            .is_some_and(|kinds| kinds.iter().any(|kind| kind == "proc-macro"))
    };
    Ok(list(&package["targets"])?.iter().any(is_macro))
}

impl Crate {
    fn read(package: &Value) -> Result<Self> {
        let manifest = Path::new(workspace::text(&package["manifest_path"])?);
        let folder = manifest.parent().context("a manifest without a folder")?;
        let or = |value: &Value, other: &str| value.as_str().unwrap_or(other).to_owned();
        let name = workspace::text(&package["name"])?;
        let mut files = Vec::new();
        licence_files(folder, folder, 0, &mut files)?;
        files.sort();
        Ok(Self {
            name: format!("{name} {}", workspace::text(&package["version"])?),
            license: or(&package["license"], "no licence declared"),
            repository: or(&package["repository"], ""),
            files,
        })
    }
}

fn licence_files(
    root: &Path,
    folder: &Path,
    depth: usize,
    files: &mut Vec<(String, String)>,
) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if entry.file_type()?.is_dir() {
            if depth < MOST_DEPTH {
                licence_files(root, &path, depth + 1, files)?;
            }
        } else if ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"]
            .iter()
            .any(|start| name.starts_with(start))
            && !name.ends_with(".RS")
        {
            let text =
                fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let text = String::from_utf8_lossy(&text).replace("\r\n", "\n");
            let relative = path.strip_prefix(root).expect("found below it");
            files.push((relative.display().to_string(), text.trim().to_owned()));
        }
    }
    Ok(())
}

fn list(value: &Value) -> Result<&Vec<Value>> {
    value
        .as_array()
        .context("cargo metadata has an unexpected form")
}
