//! A checkpoint's directory -> its manifest, once the hash of every file is verified.

use std::collections::BTreeSet;
use std::path::Path;

use espalier_system::files::{Damage, FileKind, check_file, files_below, read_regular};

use super::manifest::{BY_RANK, WHOLE};
use super::{MANIFEST, Manifest, seal};

/// Checks the directory `path`, saved after `step` steps.
pub(super) fn verify(path: &Path, step: u64) -> Result<Manifest, Damage> {
    let manifest = read_manifest(path, step)?;
    let listed = files_below(path, "");
    let found = listed.map_err(|error| Damage::of("", &error.to_string()))?;
    let expected: BTreeSet<&str> = manifest.files.iter().map(|f| f.file.as_str()).collect();
    if let Some(missing) = expected.iter().find(|name| !found.contains(**name)) {
        return Err(Damage::of(missing, "it is missing"));
    }
    let stranger = |name: &&String| *name != MANIFEST && !expected.contains(name.as_str());
    if let Some(stranger) = found.iter().find(stranger) {
        return Err(Damage::of(stranger, "it does not belong to the checkpoint"));
    }
    for file in &manifest.files {
        check_file(path, file)?;
    }
    Ok(manifest)
}

fn read_manifest(path: &Path, step: u64) -> Result<Manifest, Damage> {
    let fail = |problem: &str| Damage::of(MANIFEST, problem);
    let read = read_regular(&path.join(MANIFEST), FileKind::Record);
    let text = read.map_err(|error| {
        if error.is_not_found() {
            fail("it is missing")
        } else {
            fail(&format!("it cannot be read: {error}"))
        }
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
