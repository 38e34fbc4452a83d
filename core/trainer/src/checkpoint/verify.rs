//! A checkpoint's directory -> its manifest, once every byte of every file is what was saved.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::manifest::{BY_RANK, WHOLE};
use super::{MANIFEST, Manifest, seal};
use crate::files::{FileHash, FileKind, hash_file, read_regular};

/// The first file of a checkpoint that is not as it was saved.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Damage {
    /// Its path in the directory.
    pub file: String,
    /// What is wrong with it.
    pub problem: String,
}

/// Checks the directory `path`, saved after `step` steps.
pub(super) fn verify(path: &Path, step: u64) -> Result<Manifest, Damage> {
    let manifest = read_manifest(path, step)?;
    let found = files_below(path, "")?;
    let expected: BTreeSet<&str> = manifest.files.iter().map(|f| f.file.as_str()).collect();
    if let Some(missing) = expected.iter().find(|name| !found.contains(**name)) {
        return Err(damage(missing, "it is missing"));
    }
    let stranger = |name: &&String| *name != MANIFEST && !expected.contains(name.as_str());
    if let Some(stranger) = found.iter().find(stranger) {
        return Err(damage(stranger, "it does not belong to the checkpoint"));
    }
    for file in &manifest.files {
        check_file(path, file)?;
    }
    Ok(manifest)
}

fn read_manifest(path: &Path, step: u64) -> Result<Manifest, Damage> {
    let fail = |problem: &str| damage(MANIFEST, problem);
    let read = read_regular(&path.join(MANIFEST), FileKind::Record);
    let text = read.map_err(|error| match error.is_not_found() {
        true => fail("it is missing"),
        false => fail(&format!("it cannot be read: {error}")),
    })?;
    let content = seal::open(&text)
        .ok_or_else(|| fail("its content does not have the sha256 that it begins with"))?;
    let manifest: Manifest = serde_json::from_value(content).map_err(|error| {
        fail(&format!(
            "written by another version of this program: {error}"
        ))
    })?;
    if ![WHOLE, BY_RANK].contains(&manifest.format) {
        return Err(fail(&format!(
            "expected a checkpoint of format {WHOLE} or {BY_RANK}, found format {}",
            manifest.format
        )));
    }
    if manifest.progress.step != step {
        return Err(fail(&format!(
            "it was saved after step {}, its directory says {step}",
            manifest.progress.step
        )));
    }
    Ok(manifest)
}

/// The paths of all files below `directory`; a directory without any counts as one.
fn files_below(directory: &Path, name: &str) -> Result<BTreeSet<String>, Damage> {
    let fail = |error: std::io::Error| damage(name, &format!("it cannot be listed: {error}"));
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(directory).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let file = entry.file_name().to_string_lossy().into_owned();
        let file = match name {
            "" => file,
            _ => format!("{name}/{file}"),
        };
        if entry.file_type().map_err(fail)?.is_dir() {
            found.append(&mut files_below(&entry.path(), &file)?);
        } else {
            found.insert(file);
        }
    }
    if found.is_empty() && !name.is_empty() {
        found.insert(name.to_owned());
    }
    Ok(found)
}

fn check_file(directory: &Path, expected: &FileHash) -> Result<(), Damage> {
    let fail = |problem: String| Err(damage(&expected.file, &problem));
    let path = directory.join(&expected.file);
    // The size first: it needs no reading, and says more.
    match fs::metadata(&path) {
        Ok(metadata) if metadata.len() != expected.bytes => {
            return fail(format!(
                "it has {} bytes, expected {}",
                metadata.len(),
                expected.bytes
            ));
        }
        _ => {}
    }
    match hash_file(&path) {
        Ok(found) if found.sha256 == expected.sha256 => Ok(()),
        Ok(found) => fail(format!(
            "its sha256 is {}, expected {}",
            found.sha256, expected.sha256
        )),
        Err(error) => fail(format!("it cannot be read: {error}")),
    }
}

fn damage(file: &str, problem: &str) -> Damage {
    Damage {
        file: file.to_owned(),
        problem: problem.to_owned(),
    }
}
