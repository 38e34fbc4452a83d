//! Weights that were encoded with statistics of their inputs, in an unnamed file until they are
//! loaded.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use espalier_interface::format::Format;
use espalier_system::files::WeightsError;

use super::{DecodeCheck, KeptWeights, PackingError};
use crate::Error;

/// Weights that calibration encoded or took from the cache, by the names of their params. Loading
/// takes them from here and encodes none of them again.
pub struct CalibratedWeights {
    directory: PathBuf,
    kept: KeptWeights,
    known: Mutex<HashMap<String, CalibratedWeight>>,
}

/// What is known of a weight beside its segments.
#[derive(Clone, Debug, PartialEq)]
pub struct CalibratedWeight {
    /// Nanoseconds that its encoder took, in this run or in the one that cached it.
    pub encode_nanos: u64,
    /// Whether the cache had it.
    pub is_cached: bool,
    /// Its distance from the dense weight.
    pub error: PackingError,
    /// The decode checks made so far where it was packed.
    pub checks: Vec<DecodeCheck>,
}

impl CalibratedWeights {
    /// A file in `directory` of at most `most_bytes` bytes, which the operating system deletes with
    /// the process.
    pub fn new(directory: &Path, most_bytes: u64) -> Self {
        CalibratedWeights {
            directory: directory.to_owned(),
            kept: KeptWeights::new(directory, most_bytes),
            known: Mutex::default(),
        }
    }

    /// Keeps the segments of the weight `name`.
    ///
    /// # Errors
    /// `Error::File` for a disk without room.
    pub fn put(
        &self,
        (name, format): (&str, &Format),
        segments: &[&[u8]],
        weight: CalibratedWeight,
    ) -> Result<(), Error> {
        self.kept.put((name, format), segments, &[]);
        self.known().insert(name.to_owned(), weight);
        self.failure()
    }

    /// Whether the weight `name` is here.
    pub fn holds(&self, name: &str) -> bool {
        self.known().contains_key(name)
    }

    /// The weights that are here, and how many of them the cache had.
    pub fn counts(&self) -> [usize; 2] {
        let known = self.known();
        let cached = known.values().filter(|one| one.is_cached);
        [known.len(), cached.count()]
    }

    /// Fills in the segments of the weight `name`; returns what is known of it, and nothing where
    /// it is not here.
    ///
    /// # Errors
    /// `Error::File` for a file that cannot be read, `Error::Weights` after that.
    pub fn fill(
        &self,
        (name, format): (&str, &Format),
        segments: &mut [&mut [u8]],
    ) -> Result<Option<CalibratedWeight>, Error> {
        let found = self.kept.read((name, format), |segment, at, part| {
            segments[segment][at as usize..][..part.len()].copy_from_slice(part);
            Ok(())
        })?;
        self.failure()?;
        let known = self.known().get(name).cloned();
        match (found, known) {
            (Some(_), known) => Ok(known),
            (None, None) => Ok(None),
            (None, Some(_)) => Err(Error::Weights(WeightsError {
                path: self.directory.clone(),
                message: format!(
                    "the calibrated weight `{name}` cannot be read from its unnamed file: expected \
                     what was written there; see whether the disk is full or damaged"
                ),
            })),
        }
    }

    fn failure(&self) -> Result<(), Error> {
        match self.kept.take_failure() {
            None => Ok(()),
            Some(failure) => Err(Error::File(failure)),
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, CalibratedWeight>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use espalier_interface::DType;
    use espalier_interface::format::{Decoding, SegmentSpec};

    use super::*;

    #[test]
    fn what_was_put_is_filled_in_and_a_full_disk_is_told() {
        let place = tempfile::tempdir().expect("a folder");
        let format = Format {
            quantizer: "q".to_owned(),
            shape: [1, 3],
            segments: vec![SegmentSpec::new("codes", DType::U8, 3)],
            decoding: Decoding::Callback,
        };
        let weight = |is_cached| CalibratedWeight {
            encode_nanos: 7,
            is_cached,
            error: PackingError::default(),
            checks: Vec::new(),
        };
        let weights = CalibratedWeights::new(place.path(), 6);
        let put = |name, cached| weights.put((name, &format), &[&[1, 2, 3]], weight(cached));
        put("a", false).expect("room");
        put("c", true).expect("room");
        assert_eq!(weights.counts(), [2, 1]);
        assert!(weights.holds("c") && !weights.holds("b"));
        let mut bytes = [0; 3];
        let fill = |name, bytes: &mut [u8]| weights.fill((name, &format), &mut [bytes]);
        assert_eq!(fill("b", &mut bytes).expect("read"), None);
        let found = fill("a", &mut bytes).expect("read");
        assert_eq!(found, Some(weight(false)));
        assert_eq!(bytes, [1, 2, 3]);
        let weights = CalibratedWeights::new(&place.path().join("missing"), 3);
        let put = || weights.put(("a", &format), &[&[1, 2, 3]], weight(false));
        put().expect_err("no folder");
        // It failed before: it is not taken for a weight without statistics.
        let found = weights.fill(("a", &format), &mut [&mut bytes]);
        assert!(found.expect_err("lost").to_string().contains("`a`"));
    }
}
