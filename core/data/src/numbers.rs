//! A long list of numbers, in memory while it is short and in a temporary file when it is not.
//!
//! The file never has a name, so it ends with the process in every case. It is read by
//! position, so what was read does not count as the process's memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::error::DataError;

/// Most bytes of numbers in memory.
const IN_MEMORY: usize = 64 << 20;
/// Numbers that are written at once.
const BUFFERED: usize = 1 << 18;

/// An append-only list of numbers, read by position.
pub(super) struct Numbers {
    directory: PathBuf,
    /// The most numbers that stay in memory.
    limit: usize,
    /// All numbers, or those that are not in the file yet.
    held: Vec<i32>,
    file: Option<File>,
    /// Numbers in the file.
    written: u64,
}

impl Numbers {
    /// An empty list; its file is made in `directory` when needed.
    pub(super) fn new(directory: &Path) -> Self {
        Numbers {
            directory: directory.to_path_buf(),
            limit: IN_MEMORY / size_of::<i32>(),
            held: Vec::new(),
            file: None,
            written: 0,
        }
    }

    /// The same with room for `limit` numbers in memory.
    #[cfg(test)]
    pub(super) fn with_limit(self, limit: usize) -> Self {
        Numbers { limit, ..self }
    }

    /// Numbers so far.
    pub(super) fn len(&self) -> u64 {
        self.written + self.held.len() as u64
    }

    /// Bytes in the file; 0 where there is none.
    pub(super) fn file_bytes(&self) -> u64 {
        self.written * size_of::<i32>() as u64
    }

    /// Bytes in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.held.capacity() * size_of::<i32>()
    }

    /// Appends `numbers`.
    ///
    /// # Errors
    /// [`DataError::Cache`] for a file that cannot be made or written.
    pub(super) fn extend(&mut self, numbers: &[i32]) -> Result<(), DataError> {
        self.held.extend_from_slice(numbers);
        let most = match self.file {
            Some(_) => BUFFERED,
            None => self.limit,
        };
        if self.held.len() > most {
            self.write()
        } else {
            Ok(())
        }
    }

    /// Writes what is buffered; nothing may be added afterwards.
    ///
    /// # Errors
    /// As [`Numbers::extend`].
    pub(super) fn finish(&mut self) -> Result<(), DataError> {
        if self.file.is_some() {
            self.write()?;
            self.held = Vec::new();
        }
        self.held.shrink_to_fit();
        Ok(())
    }

    /// The `count` numbers from `start` on.
    ///
    /// # Errors
    /// [`DataError::Cache`] for a file that cannot be read.
    ///
    /// # Panics
    /// Where there are fewer numbers, or [`Numbers::finish`] was not called.
    pub(super) fn read(&self, start: u64, count: usize) -> Result<Vec<i32>, DataError> {
        let Some(file) = &self.file else {
            return Ok(self.held[start as usize..][..count].to_vec());
        };
        let mut bytes = vec![0; count * size_of::<i32>()];
        file.read_exact_at(&mut bytes, start * size_of::<i32>() as u64)
            .map_err(|source| self.failed("read", source))?;
        let (numbers, _) = bytes.as_chunks();
        Ok(numbers
            .iter()
            .map(|number| i32::from_le_bytes(*number))
            .collect())
    }

    fn write(&mut self) -> Result<(), DataError> {
        let file = match self.file.take() {
            Some(file) => file,
            None => tempfile::tempfile_in(&self.directory)
                .map_err(|source| self.failed("make", source))?,
        };
        for part in self.held.chunks(BUFFERED) {
            let bytes: Vec<u8> = part
                .iter()
                .flat_map(|number| number.to_le_bytes())
                .collect();
            file.write_all_at(&bytes, self.file_bytes())
                .map_err(|source| self.failed("write", source))?;
            self.written += part.len() as u64;
        }
        self.held.clear();
        self.held.shrink_to(BUFFERED);
        self.file = Some(file);
        Ok(())
    }

    fn failed(&self, doing: &'static str, source: io::Error) -> DataError {
        DataError::Cache {
            doing,
            directory: self.directory.clone(),
            bytes: self.len() * size_of::<i32>() as u64,
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(directory: &Path, limit: usize, parts: &[usize]) -> Result<Numbers, DataError> {
        let mut numbers = Numbers::new(directory).with_limit(limit);
        let mut next = -5;
        for &count in parts {
            let part: Vec<i32> = (next..).take(count).collect();
            next += count as i32;
            numbers.extend(&part)?;
        }
        numbers.finish()?;
        Ok(numbers)
    }

    #[test]
    fn memory_and_file_give_the_same_numbers() {
        let directory = tempfile::tempdir().unwrap();
        let parts = [3, 0, 700_000, 11, 300_000];
        let held = filled(directory.path(), usize::MAX, &parts).unwrap();
        assert_eq!((held.len(), held.file_bytes()), (1_000_014, 0));
        for limit in [0, 4, 700_010] {
            let filed = filled(directory.path(), limit, &parts).unwrap();
            assert_eq!((filed.len(), filed.file_bytes()), (1_000_014, 4_000_056));
            assert_eq!(filed.memory_bytes(), 0);
            for (start, count) in [(0, 1), (2, 700_010), (1_000_013, 1), (7, 0)] {
                let expected: Vec<i32> = (start as i32 - 5..).take(count).collect();
                assert_eq!(filed.read(start, count).unwrap(), expected);
                assert_eq!(held.read(start, count).unwrap(), expected);
            }
        }
        let left = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(left, 0, "the file has no name");
    }

    #[test]
    fn a_directory_that_takes_no_file_is_named() {
        let refused = filled(Path::new("nowhere/at/all"), 0, &[1]).err();
        let message = refused.expect("refused").to_string();
        assert!(message.contains("nowhere/at/all"), "{message}");
        assert!(message.contains("data.cache_dir"), "{message}");
    }
}
