//! Weights that a run encoded -> an unnamed file, from which later runs of the same base take them.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use espalier_interface::format::Format;
use espalier_system::files::{FileError, free_bytes, write_error};

use super::DecodeCheck;
use super::decode_check::merged;
use crate::Error;

/// Bytes read at once.
const PART: usize = 1 << 20;

/// Encoded weights, for later runs of a process that would encode the same numbers with the same
/// quantizers.
///
/// They are in an unnamed file, which the operating system deletes with the process. It is written
/// only where it takes at most half of the disk's free space. After a failure nothing is kept, and
/// every run encodes.
pub struct KeptWeights {
    directory: PathBuf,
    most_bytes: u64,
    contents: Mutex<Contents>,
}

#[derive(Default)]
struct Contents {
    file: Option<File>,
    weights: HashMap<String, FilePlace>,
    /// The decode checks of the loaders that wrote.
    checks: Vec<DecodeCheck>,
    bytes: u64,
    failed: bool,
    failure: Option<FileError>,
}

/// Where a weight's segments are, one after the other.
struct FilePlace {
    format: Format,
    first: u64,
}

impl KeptWeights {
    /// A file in `directory` of at most `most_bytes` bytes, made when the first weight is kept.
    pub fn new(directory: &Path, most_bytes: u64) -> Self {
        KeptWeights {
            directory: directory.to_owned(),
            most_bytes,
            contents: Mutex::default(),
        }
    }

    /// The failure that ended the keeping, once.
    pub fn take_failure(&self) -> Option<FileError> {
        self.contents().failure.take()
    }

    /// Whether the weight `name` is kept in this format.
    pub fn holds(&self, name: &str, format: &Format) -> bool {
        self.contents().place(name, format).is_some()
    }

    /// Keeps the segments of the weight `name`. `checks` are the decode checks of its loader.
    pub(super) fn put(
        &self,
        (name, format): (&str, &Format),
        segments: &[&[u8]],
        checks: &[DecodeCheck],
    ) {
        let mut contents = self.contents();
        if contents.failed || contents.place(name, format).is_some() {
            return;
        }
        match self.write(&mut contents, segments) {
            Ok(first) => {
                let format = format.clone();
                let place = FilePlace { format, first };
                contents.weights.insert(name.to_owned(), place);
                let before = std::mem::take(&mut contents.checks);
                contents.checks = merged(before, checks.to_vec());
            }
            Err(failure) => contents.fail(failure),
        }
    }

    /// Passes the segments of the weight `name` to `put`, from an offset on and a part at a time.
    /// Returns the decode checks of their loaders; none where the weight must be encoded.
    ///
    /// # Errors
    /// The error of `put`.
    pub(super) fn read(
        &self,
        (name, format): (&str, &Format),
        mut put: impl FnMut(usize, u64, &[u8]) -> Result<(), Error>,
    ) -> Result<Option<Vec<DecodeCheck>>, Error> {
        let mut contents = self.contents();
        let found = contents.place(name, format).zip(contents.file.as_ref());
        let Some((mut first, file)) = found else {
            return Ok(None);
        };
        let longest = format.segments.iter().map(|segment| segment.bytes());
        let mut part = vec![0; PART.min(longest.max().unwrap_or(0) as usize)];
        for (index, segment) in format.segments.iter().enumerate() {
            let bytes = segment.bytes();
            for at in (0..bytes).step_by(PART) {
                let part = &mut part[..PART.min((bytes - at) as usize)];
                if let Err(source) = file.read_exact_at(part, first + at) {
                    let path = self.directory.clone();
                    contents.fail(FileError::Read { path, source });
                    return Ok(None);
                }
                put(index, at, part)?;
            }
            first += bytes;
        }
        Ok(Some(contents.checks.clone()))
    }

    /// Writes segments behind the others; returns where they begin.
    fn write(&self, contents: &mut Contents, segments: &[&[u8]]) -> Result<u64, FileError> {
        let failed = |error| write_error(&self.directory, self.most_bytes, error);
        let file = match contents.file.take() {
            Some(file) => file,
            None => {
                self.check_room()?;
                tempfile::tempfile_in(&self.directory).map_err(failed)?
            }
        };
        let (file, first) = (contents.file.insert(file), contents.bytes);
        for segment in segments {
            file.write_all_at(segment, contents.bytes).map_err(failed)?;
            contents.bytes += segment.len() as u64;
        }
        Ok(first)
    }

    /// Refuses to take more than half of the free space: runs write there, too.
    fn check_room(&self) -> Result<(), FileError> {
        match free_bytes(&self.directory) {
            Some(free) if free / 2 < self.most_bytes => Err(FileError::DiskFull {
                path: self.directory.clone(),
                needed_bytes: self.most_bytes,
                free_bytes: Some(free),
                source: io::ErrorKind::StorageFull.into(),
            }),
            _ => Ok(()),
        }
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Contents {
    /// Where the weight begins, if it is kept in this format.
    fn place(&self, name: &str, format: &Format) -> Option<u64> {
        let place = self.weights.get(name)?;
        (&place.format == format).then_some(place.first)
    }

    /// Gives the file back.
    fn fail(&mut self, failure: FileError) {
        *self = Contents {
            failed: true,
            failure: Some(failure),
            ..Contents::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use espalier_interface::DType;
    use espalier_interface::format::{Decoding, SegmentSpec};

    use super::*;

    fn format(bytes: u64) -> Format {
        Format {
            quantizer: "q".to_owned(),
            shape: [1, bytes],
            segments: vec![
                SegmentSpec::new("codes", DType::U8, bytes),
                SegmentSpec::new("scales", DType::U8, 3),
            ],
            decoding: Decoding::Callback,
        }
    }

    fn read(kept: &KeptWeights, name: &str, format: &Format) -> Option<[Vec<u8>; 2]> {
        let mut found = [Vec::new(), Vec::new()];
        let checks = kept.read((name, format), |segment, at, part| {
            assert_eq!(found[segment].len() as u64, at);
            found[segment].extend(part);
            Ok(())
        });
        checks.expect("read").map(|_| found)
    }

    #[test]
    fn kept_segments_are_read_back_and_leave_no_name() {
        let place = tempfile::tempdir().expect("a folder");
        let kept = KeptWeights::new(place.path(), 1 << 22);
        let (small, large) = (format(5), format(PART as u64 + 7));
        let codes: Vec<u8> = (0..PART + 7).map(|index| index as u8).collect();
        kept.put(("a", &small), &[&[1; 5], &[2; 3]], &[]);
        kept.put(("b", &large), &[&codes, &[3; 3]], &[]);
        // The first is kept.
        kept.put(("a", &small), &[&[9; 5], &[9; 3]], &[]);
        assert_eq!(read(&kept, "a", &small), Some([vec![1; 5], vec![2; 3]]));
        assert!(read(&kept, "b", &large) == Some([codes, vec![3; 3]]));
        assert_eq!(read(&kept, "a", &large), None, "another format");
        assert_eq!(read(&kept, "c", &small), None);
        assert!(kept.take_failure().is_none());
        let mut names = std::fs::read_dir(place.path()).expect("a folder");
        assert!(names.next().is_none(), "the file has no name");
    }

    #[test]
    fn a_disk_without_room_is_told_of_once_and_keeps_nothing() {
        let place = tempfile::tempdir().expect("a folder");
        for kept in [
            KeptWeights::new(place.path(), u64::MAX),
            KeptWeights::new(&place.path().join("missing"), 8),
        ] {
            let format = format(5);
            kept.put(("a", &format), &[&[1; 5], &[2; 3]], &[]);
            assert!(kept.take_failure().is_some());
            kept.put(("a", &format), &[&[1; 5], &[2; 3]], &[]);
            assert_eq!(read(&kept, "a", &format), None);
            assert!(kept.take_failure().is_none());
        }
    }
}
