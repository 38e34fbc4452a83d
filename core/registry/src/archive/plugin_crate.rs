//! A crate's folder or a library -> the built library and its licence.

use std::path::{Path, PathBuf};
use std::{env, fs};

use espalier_system::files::{FileKind, read_regular_text};

use super::archive_error::ArchiveError;

/// First words of the names of licence files.
const LICENSES: [&str; 3] = ["LICENSE", "LICENCE", "COPYING"];

/// A built plugin, found from its crate or library.
#[derive(Clone, Debug)]
pub struct BuiltPlugin {
    /// The library.
    pub library: PathBuf,
    /// The licence's name in the crate's manifest.
    pub license: Option<String>,
    /// The files of its text, sorted by name.
    pub license_files: Vec<PathBuf>,
}

/// Finds the library and the licence of `path`, a crate's folder or a library. The licences `named`
/// replace those beside the crate's manifest.
///
/// # Errors
/// A folder without a built library; no licence.
pub fn find_built(path: &Path, named: &[PathBuf]) -> Result<BuiltPlugin, ArchiveError> {
    let library = if path.is_dir() {
        built_library(path)?
    } else {
        path.to_owned()
    };
    let from = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    // A library lies in its crate's `target/release`.
    let folder = from
        .ancestors()
        .find(|one| one.join("Cargo.toml").is_file());
    let manifest = folder.map(read_manifest).unwrap_or_default();
    let mut license_files = named.to_vec();
    if named.is_empty() {
        let near = folder.map_or_else(Vec::new, licenses_in);
        license_files = near;
    }
    if license_files.is_empty() {
        let folder = folder.or(from.parent()).unwrap_or(&from).to_owned();
        return Err(ArchiveError::NoLicense { folder });
    }
    Ok(BuiltPlugin {
        library,
        license: value_of(&manifest, "license").map(str::to_owned),
        license_files,
    })
}

/// The library that cargo built of the crate in `folder`.
fn built_library(folder: &Path) -> Result<PathBuf, ArchiveError> {
    let manifest = read_manifest(folder);
    let (_, of_library) = manifest.split_once("[lib]").unwrap_or_default();
    let of_library = of_library.split("\n[").next().unwrap_or_default();
    let name = value_of(of_library, "name").or_else(|| value_of(&manifest, "name"));
    let file = format!("lib{}.so", name.unwrap_or("NAME").replace('-', "_"));
    let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let named = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let targets = folder.ancestors().map(|one| one.join("target"));
    let files = named.into_iter().chain(targets);
    let files: Vec<PathBuf> = files.map(|one| one.join("release").join(&file)).collect();
    match files.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.clone()),
        None => Err(ArchiveError::NotBuilt {
            looked_for: files[0].display().to_string(),
            folder,
        }),
    }
}

fn read_manifest(folder: &Path) -> String {
    let path = folder.join("Cargo.toml");
    read_regular_text(&path, FileKind::RunConfig).unwrap_or_default()
}

/// The text that the first line `key = "text"` of a manifest gives.
fn value_of<'a>(manifest: &'a str, key: &str) -> Option<&'a str> {
    manifest.lines().find_map(|line| {
        let rest = line.trim().strip_prefix(key)?.trim_start();
        let rest = rest.strip_prefix('=')?.trim_start().strip_prefix('"')?;
        Some(rest.split_once('"')?.0)
    })
}

fn licenses_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_license = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        LICENSES.iter().any(|word| name.starts_with(word)) && path.is_file()
    };
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(is_license)
        .collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_whole_keys() {
        let manifest =
            "[package]\nnames = \"a\"\nname= \"b\" # why\nlicense = \"MIT OR Apache-2.0\"";
        assert_eq!(value_of(manifest, "name"), Some("b"));
        assert_eq!(value_of(manifest, "license"), Some("MIT OR Apache-2.0"));
        assert_eq!(value_of(manifest, "version"), None);
    }
}
