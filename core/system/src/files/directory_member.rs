//! A name in a model directory -> the path of a file that is really inside it.

use std::io;
use std::path::{Component, Path, PathBuf};

use super::regular_file::described;
use super::{FileError, FileKind};

/// True for a plain file name: one path component that is no `.`, `..`, root or prefix.
pub(super) fn is_plain_name(name: &str) -> bool {
    let mut components = Path::new(name).components();
    let plain = matches!(components.next(), Some(Component::Normal(only)) if only == name);
    plain && components.next().is_none() && !name.contains(['/', '\\', '\0'])
}

/// The file `name` of `directory`; `None` where it is missing or a broken link.
///
/// A link must stay in the directory, or in the `blobs` of the cache repository whose snapshot the
/// directory is. A downloaded model must not choose which of the user's files are read.
///
/// # Errors
///
/// [`FileError::LeavesDirectory`], and [`FileError::NotAFile`] for pipes, devices and directories.
pub(super) fn find_member(directory: &Path, name: &str) -> Result<Option<PathBuf>, FileError> {
    debug_assert!(is_plain_name(name), "checked by the caller: {name:?}");
    let path = directory.join(name);
    let fail = |path: &Path, source| FileError::Read {
        path: path.to_owned(),
        source,
    };
    let target = match path.canonicalize() {
        Ok(target) => target,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail(&path, error)),
    };
    let home = directory
        .canonicalize()
        .map_err(|source| fail(directory, source))?;
    let contained = target.starts_with(&home)
        || snapshot_blobs(&home).is_some_and(|blobs| target.starts_with(blobs));
    if !contained {
        return Err(FileError::LeavesDirectory { path, target });
    }
    let metadata = target.metadata().map_err(|source| fail(&path, source))?;
    if !metadata.is_file() {
        return Err(FileError::NotAFile {
            path,
            kind: FileKind::Content,
            found: described(metadata.file_type()),
        });
    }
    Ok(Some(path))
}

/// The `blobs` of the cache repository whose `snapshots/REVISION` is `home`; `None` where `home` is
/// no snapshot or `blobs` is a link.
fn snapshot_blobs(home: &Path) -> Option<PathBuf> {
    let snapshots = home.parent()?;
    if snapshots.file_name()? != "snapshots" {
        return None;
    }
    let blobs = snapshots.parent()?.join("blobs");
    (blobs.canonicalize().ok()? == blobs).then_some(blobs)
}

#[cfg(test)]
mod tests {
    use super::is_plain_name;

    #[test]
    fn only_plain_names_pass() {
        for plain in [
            "model.safetensors",
            "model-00001-of-00002.safetensors",
            "..a",
            "a b",
        ] {
            assert!(is_plain_name(plain), "{plain:?}");
        }
        for tricky in [
            "",
            ".",
            "..",
            "../a",
            "/etc/passwd",
            "a/b",
            "a/",
            "./a",
            "a\0b",
            "a\\b",
        ] {
            assert!(!is_plain_name(tricky), "{tricky:?}");
        }
    }
}
