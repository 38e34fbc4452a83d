//! A file of a cache as it was announced: its place, its size, its hash.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use espalier_system::files::hash_file;

/// Hexadecimal digits of a sha256, which is the tag of a large file.
const SHA256_DIGITS: usize = 64;

/// A file in the `blobs` of a repository's folder, named by its tag.
pub(crate) struct Blob {
    /// The repository's folder.
    pub folder: PathBuf,
    /// The hub's tag of the content.
    pub tag: String,
    pub bytes: u64,
}

/// How a file compares with what was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    /// A beginning of it.
    Part,
    Whole,
    /// Another content.
    Other,
}

impl Blob {
    /// Whether the tag is a plain name. It becomes a file's name.
    pub fn has_plain_tag(&self) -> bool {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        !self.tag.is_empty() && self.tag.chars().all(plain)
    }

    pub fn path(&self) -> PathBuf {
        self.folder.join("blobs").join(&self.tag)
    }

    /// The file that `hf-hub` appends to until it is whole.
    pub fn part(&self) -> PathBuf {
        self.path().with_extension("part")
    }

    /// Compares the file with its size, and a large one with its hash.
    pub fn check(&self) -> io::Result<Found> {
        let path = self.path();
        let found = match path.metadata() {
            Ok(found) => found.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
            Err(error) => return Err(error),
        };
        if found < self.bytes {
            return Ok(Found::Part);
        }
        let mut same = found == self.bytes;
        if same && self.tag.len() == SHA256_DIGITS {
            same = hash_file(&path).map_err(io::Error::other)?.sha256 == self.tag;
        }
        Ok(if same { Found::Whole } else { Found::Other })
    }

    /// Makes the next attempt go on behind what is there: a blob that ended early becomes a part.
    /// A part of all bytes is one byte shorter, so that there is a byte to ask for.
    pub fn prepare(&self) -> io::Result<()> {
        if self.check()? == Found::Part {
            fs::rename(self.path(), self.part())?;
        }
        match File::options().write(true).open(self.part()) {
            Ok(part) if part.metadata()?.len() >= self.bytes => {
                part.set_len(self.bytes.saturating_sub(1))
            }
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes a file of another content.
    pub fn remove(&self) -> io::Result<()> {
        fs::remove_file(self.path())
    }

    /// Makes `name` of the snapshot of `commit` a link to the file, as the hub's tools do.
    pub fn link(&self, commit: &str, name: &str) -> io::Result<()> {
        let pointer = self.folder.join("snapshots").join(commit).join(name);
        if pointer.exists() {
            return Ok(());
        }
        fs::create_dir_all(pointer.parent().expect("it is in the folder"))?;
        match fs::remove_file(&pointer) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let up = "../".repeat(Path::new(name).components().count() + 1);
        symlink(format!("{up}blobs/{}", self.tag), pointer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of `abc`.
    const TAG: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn blob(folder: &Path) -> Blob {
        fs::create_dir_all(folder.join("blobs")).expect("a folder");
        Blob {
            folder: folder.to_owned(),
            tag: TAG.to_owned(),
            bytes: 3,
        }
    }

    #[test]
    fn a_blob_is_compared_with_size_and_hash() {
        let folder = tempfile::tempdir().expect("a folder");
        let blob = blob(folder.path());
        for (content, found) in [
            (None, Found::Nothing),
            (Some("ab"), Found::Part),
            (Some("abc"), Found::Whole),
            (Some("abd"), Found::Other),
            (Some("abcd"), Found::Other),
        ] {
            if let Some(content) = content {
                fs::write(blob.path(), content).expect("written");
            }
            assert_eq!(blob.check().expect("read"), found, "{content:?}");
        }
    }

    #[test]
    fn the_next_attempt_goes_on_behind_what_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let blob = blob(folder.path());
        blob.prepare().expect("nothing to do");
        fs::write(blob.path(), "ab").expect("written");
        blob.prepare().expect("moved");
        assert_eq!(fs::read(blob.part()).expect("a part"), b"ab");
        fs::write(blob.part(), "abcd").expect("written");
        blob.prepare().expect("cut");
        assert_eq!(fs::read(blob.part()).expect("a part"), b"ab");
    }

    #[test]
    fn a_link_leads_from_a_snapshot_to_its_blob() {
        let folder = tempfile::tempdir().expect("a folder");
        let blob = blob(folder.path());
        fs::write(blob.path(), "abc").expect("written");
        for name in ["config.json", "data/train.jsonl"] {
            blob.link("1f", name).expect("a link");
            let pointer = folder.path().join("snapshots/1f").join(name);
            assert_eq!(fs::read(pointer).expect("the blob"), b"abc");
        }
    }

    #[test]
    fn tags_that_are_no_names_are_known() {
        let with = |tag: &str| Blob {
            folder: PathBuf::new(),
            tag: tag.to_owned(),
            bytes: 0,
        };
        assert!(with(TAG).has_plain_tag());
        for tag in ["", "../x", "/etc/passwd", "W/\"1\""] {
            assert!(!with(tag).has_plain_tag(), "{tag}");
        }
    }
}
