//! Compiled kernels on disk: a folder that is written, and one that came with the program.
//!
//! A file is named after what its code depends on, and then after the compiler's version:
//! `flat-sm_90-<hash>-nvrtc13.0.cubin`. The code is followed by its digest. The driver reads code
//! without knowing where it ends, so it is never given a file that is cut off.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io, process};

use sha2::{Digest, Sha256};

/// Bytes of a digest.
const DIGEST_BYTES: usize = 32;

/// Characters of a name's hash.
const HASH_CHARS: usize = 32;

/// The folders of compiled kernels.
#[derive(Clone, Debug, Default)]
pub struct KernelFiles {
    /// Where they are kept, if anywhere.
    pub cache: Option<PathBuf>,
    /// Where they are looked for first, whatever compiler made them. Never written.
    pub shipped: Option<PathBuf>,
}

/// A name without the compiler's version, and its ending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stem(String, &'static str);

impl Stem {
    /// The name of `source` compiled for `target`, which depends on `parts`.
    pub fn new<'a>(
        source: &str,
        (target, ending): (&'a str, &'static str),
        parts: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let mut hash = Sha256::new();
        for part in [target].into_iter().chain(parts) {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let source = source.trim_end_matches(".cu");
        let mut name = format!("{source}-{target}-");
        for byte in &hash.finalize()[..HASH_CHARS / 2] {
            let _ = write!(name, "{byte:02x}");
        }
        Stem(name, ending)
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.0
    }

    fn file(&self, [major, minor]: [i32; 2]) -> String {
        format!("{}-nvrtc{major}.{minor}.{}", self.0, self.1)
    }
}

impl fmt::Display for KernelFiles {
    /// The folders, each with its option.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folders = [(&self.shipped, "kernels"), (&self.cache, "cache_dir")];
        let folders = folders.into_iter().filter_map(|(folder, option)| {
            let folder = folder.as_ref()?.display();
            Some(format!("{folder} (backend.cuda.{option})"))
        });
        let folders: Vec<String> = folders.collect();
        match &folders[..] {
            [] => f.write_str("any folder (backend.cuda.kernels names none)"),
            _ => f.write_str(&folders.join(" and ")),
        }
    }
}

impl KernelFiles {
    /// The code of `stem`, if a file has it whole: of any compiler among the shipped ones, and of
    /// `version` in the cache. Without a version, of any there too.
    pub fn find(&self, stem: &Stem, version: Option<[i32; 2]>) -> Option<Vec<u8>> {
        let shipped = self.shipped.iter().flat_map(|at| of_any(at, stem));
        let cached = self.cache.iter().flat_map(|at| match version {
            Some(version) => vec![at.join(stem.file(version))],
            None => of_any(at, stem),
        });
        shipped.chain(cached).find_map(|file| read(&file))
    }

    /// Keeps code in the cache, if there is one.
    ///
    /// # Errors
    /// Where the folder cannot be written.
    pub fn keep(&self, stem: &Stem, version: [i32; 2], code: &[u8]) -> io::Result<()> {
        match &self.cache {
            Some(folder) => write(folder, &stem.file(version), code),
            None => Ok(()),
        }
    }
}

/// The files of `stem` in a folder, the newest compiler's first.
fn of_any(folder: &Path, stem: &Stem) -> Vec<PathBuf> {
    let prefix = format!("{}-nvrtc", stem.0);
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let version = |name: OsString| -> Option<(Vec<u32>, OsString)> {
        let text = name.to_str()?.strip_prefix(&prefix)?;
        let text = text.strip_suffix(stem.1)?.strip_suffix('.')?;
        let numbers = text.split('.').map(|number| number.parse().ok());
        Some((numbers.collect::<Option<Vec<u32>>>()?, name))
    };
    let names = entries.filter_map(|entry| version(entry.file_name()));
    let mut names: Vec<_> = names.collect();
    names.sort_unstable_by(|a, b| b.cmp(a));
    let names = names.into_iter();
    names.map(|(_, name)| folder.join(name)).collect()
}

/// The code of a file, unless it is damaged.
fn read(file: &Path) -> Option<Vec<u8>> {
    let mut bytes = fs::read(file).ok()?;
    let digest = bytes.split_off(bytes.len().checked_sub(DIGEST_BYTES)?);
    (Sha256::digest(&bytes)[..] == digest[..]).then_some(bytes)
}

/// Writes a file whole or not at all.
fn write(folder: &Path, name: &str, code: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let draft = folder.join(format!("{name}.draft-{}", process::id()));
    let whole = [code, &Sha256::digest(code)[..]].concat();
    let written = fs::write(&draft, whole).and_then(|()| fs::rename(&draft, folder.join(name)));
    // What is left of a failed attempt is of no use.
    written.inspect_err(|_| drop(fs::remove_file(&draft)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSIONS: [[i32; 2]; 2] = [[12, 8], [13, 0]];

    fn stem() -> Stem {
        Stem::new("flat.cu", ("sm_90", "cubin"), ["#define A 1\n", "text"])
    }

    #[test]
    fn names_depend_on_every_part_and_on_where_it_ends() {
        let others = [
            Stem::new("flat.cu", ("sm_80", "cubin"), ["#define A 1\n", "text"]),
            Stem::new("flat.cu", ("sm_90", "cubin"), ["#define A 2\n", "text"]),
            Stem::new("flat.cu", ("sm_90", "cubin"), ["#define A 1\nt", "ext"]),
        ];
        assert!(others.iter().all(|other| *other != stem()));
        assert!(stem().0.starts_with("flat-sm_90-"), "{:?}", stem());
    }

    #[test]
    fn damaged_files_are_not_found() {
        let folder = tempfile::tempdir().unwrap();
        let files = KernelFiles {
            cache: Some(folder.path().to_owned()),
            shipped: None,
        };
        let file = folder.path().join(stem().file([13, 0]));
        files.keep(&stem(), [13, 0], b"code").unwrap();
        assert_eq!(files.find(&stem(), Some([13, 0])).unwrap(), b"code");
        let whole = fs::read(&file).unwrap();
        for damaged in [
            &b""[..],
            &whole[..whole.len() - 1],
            &[&whole[..], b"x"].concat(),
        ] {
            fs::write(&file, damaged).unwrap();
            assert_eq!(files.find(&stem(), Some([13, 0])), None);
        }
        let names = fs::read_dir(folder.path()).unwrap();
        assert_eq!(names.count(), 1, "a draft is left");
    }

    #[test]
    fn shipped_files_serve_every_version_and_cached_ones_their_own() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [cache, shipped] = folders
            .each_ref()
            .map(|folder| Some(folder.path().to_owned()));
        let written = KernelFiles {
            cache: shipped.clone(),
            shipped: None,
        };
        for (version, code) in VERSIONS.iter().zip([b"old", b"new"]) {
            written.keep(&stem(), *version, code).unwrap();
        }
        let read = KernelFiles { cache, shipped };
        assert_eq!(read.find(&stem(), Some([12, 0])).unwrap(), b"new");
        assert_eq!(written.find(&stem(), Some([12, 0])), None);
        assert_eq!(written.find(&stem(), Some([12, 8])).unwrap(), b"old");
        assert_eq!(written.find(&stem(), None).unwrap(), b"new");
    }
}
