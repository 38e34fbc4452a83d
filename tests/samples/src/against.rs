//! The interface's sources with changes -> a sample plugin built against them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{build_in, root, target};

/// A change of one file.
#[derive(Clone, Copy, Debug)]
pub struct Patch<'a> {
    /// The file, relative to the repository's root.
    pub file: &'a str,
    /// A text that occurs in it once.
    pub from: &'a str,
    /// Its replacement.
    pub to: &'a str,
}

/// The library of the sample `package`, built against the interface with `patches` applied, like
/// its author's build against another version. `variant` names it among the samples: lower case
/// letters, digits and `-`.
///
/// # Panics
/// If a patch does not fit, or the library cannot be built.
pub fn library_against(package: &str, variant: &str, patches: &[Patch<'_>]) -> PathBuf {
    let copy = new_copy(variant);
    copy_tree(&root().join("core/interface"), &copy.join("core/interface"));
    copy_workspace(".", &copy, "members = [\"core/interface\"]");
    build(package, variant, patches, &copy)
}

/// The library of the sample `package`, built against the kept sources of interface `version`, such
/// as `0.1`.
///
/// # Panics
/// If that version was not kept, or the library cannot be built.
pub fn library_against_kept(package: &str, version: &str) -> PathBuf {
    let variant = format!("abi-{}", version.replace('.', "-"));
    // Tests build several packages at once.
    let copy = new_copy(&format!("{package}-{variant}"));
    let name = format!("interface-{version}");
    let archive = root().join(format!("tests/golden/abi/{name}.tar.gz"));
    let archive = fs::File::open(archive).expect("a version that was kept");
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(archive));
    archive.unpack(&copy).expect("room for the sources");
    build(package, &variant, &[], &copy.join(name))
}

/// A new empty folder.
fn new_copy(variant: &str) -> PathBuf {
    let copy = target().join("against").join(variant);
    let _ = fs::remove_dir_all(&copy);
    fs::create_dir_all(&copy).expect("room for a copy");
    copy
}

/// Copies the sample into `copy`, which holds an interface, and builds it there.
fn build(package: &str, variant: &str, patches: &[Patch<'_>], copy: &Path) -> PathBuf {
    let sample = format!("tests/plugins/{package}");
    copy_tree(&root().join(&sample), &copy.join(&sample));
    copy_workspace("tests/plugins", copy, &format!("members = [\"{package}\"]"));
    let lock = "tests/plugins/Cargo.lock";
    fs::copy(root().join(lock), copy.join(lock)).expect("the lock file");
    // A separate name: its library must not replace the sample's.
    let renamed = format!("{package}-{variant}");
    let name = |name: &str| format!("name = \"{name}\"");
    let manifest = format!("{sample}/Cargo.toml");
    let (from, to) = (&name(package), &name(&renamed));
    patch(
        copy,
        Patch {
            file: &manifest,
            from,
            to,
        },
    );
    for change in patches {
        patch(copy, *change);
    }
    // The lock file has the package's former name, so Cargo may update it; the versions are kept.
    build_in(
        &copy.join("tests/plugins"),
        &["--offline", "--package", &renamed, "--lib"],
    );
    target().join(format!("release/lib{}.so", renamed.replace('-', "_")))
}

/// Copies the manifest of the workspace in `folder`, with other members.
fn copy_workspace(folder: &str, copy: &Path, members: &str) {
    let file = Path::new(folder).join("Cargo.toml");
    let text = fs::read_to_string(root().join(&file)).expect("a workspace");
    let shared = text
        .find("[workspace.package]")
        .expect("what members inherit");
    let text = format!(
        "[workspace]\nresolver = \"3\"\n{members}\n\n{}",
        &text[shared..]
    );
    fs::write(copy.join(file), text).expect("room for a copy");
}

fn patch(copy: &Path, patch: Patch<'_>) {
    let path = copy.join(patch.file);
    let text = fs::read_to_string(&path).expect("a file of the copy");
    let count = text.matches(patch.from).count();
    assert_eq!(count, 1, "`{}` in {}", patch.from, patch.file);
    fs::write(path, text.replace(patch.from, patch.to)).expect("our own copy");
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("room for a copy");
    for entry in fs::read_dir(from).expect("a folder of the repository") {
        let entry = entry.expect("an entry");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy_tree(&from, &to)
        } else {
            fs::copy(from, to).expect("room for a copy");
        }
    }
}
