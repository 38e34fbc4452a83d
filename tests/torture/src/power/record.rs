//! The file written by the preloaded library -> changes of files in order.

use std::path::{Path, PathBuf};

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Creates or empties a file.
    Open,
    Write,
    Truncate,
    /// Allocates space after the end.
    Extend,
    Sync,
    MakeDirectory,
    /// Removes a file or an empty directory.
    Remove,
    Rename,
    Link,
}

/// One change that was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Its kind.
    pub kind: Kind,
    /// Its path below the recorded folder.
    pub path: PathBuf,
    /// The second path of a rename or a link.
    pub to: PathBuf,
    /// The written bytes.
    pub bytes: Vec<u8>,
    /// Offset, length or flags.
    pub at: i64,
}

/// The changes below `folder` in `record`.
///
/// # Panics
/// If something was done that the model of a disk does not know, or the record is cut.
pub fn read(record: &[u8], folder: &Path) -> Vec<Change> {
    let mut rest = record;
    let mut changes = Vec::new();
    while !rest.is_empty() {
        let [name, path, to, bytes] = [(); 4].map(|()| part(&mut rest));
        let at = i64::from_le_bytes(take(&mut rest, 8).try_into().expect("8 bytes"));
        let relative = |path: &[u8]| {
            let path = PathBuf::from(String::from_utf8_lossy(path).into_owned());
            path.strip_prefix(folder).map(Path::to_owned).ok()
        };
        let kind = match name {
            b"open" => Kind::Open,
            b"write" => Kind::Write,
            b"truncate" => Kind::Truncate,
            b"extend" => Kind::Extend,
            b"fsync" => Kind::Sync,
            b"mkdir" => Kind::MakeDirectory,
            b"unlink" => Kind::Remove,
            b"rename" => Kind::Rename,
            b"link" => Kind::Link,
            other => panic!(
                "the model of a disk does not know `{}`",
                other.escape_ascii()
            ),
        };
        // A file that was removed while open has no name.
        if path.ends_with(b" (deleted)") {
            continue;
        }
        let path = relative(path).expect("a path below the recorded folder");
        let to = relative(to).unwrap_or_default();
        changes.push(Change {
            kind,
            path,
            to,
            bytes: bytes.to_vec(),
            at,
        });
    }
    changes
}

fn part<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let length = u32::from_le_bytes(take(rest, 4).try_into().expect("4 bytes"));
    take(rest, length as usize)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, behind) = rest
        .split_at_checked(length)
        .expect("a record is written whole");
    *rest = behind;
    taken
}
