//! Weights that were encoded with statistics of their inputs, in an unnamed file until they are
//! loaded.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use espalier_interface::format::Format;

use super::KeptWeights;
use crate::Error;

/// Weights that calibration encoded, by the names of their params. Loading takes them from here and
/// encodes none of them again.
pub struct CalibratedWeights {
    kept: KeptWeights,
    /// Nanoseconds that each weight's encoder took.
    encode_nanos: Mutex<HashMap<String, u64>>,
}

impl CalibratedWeights {
    /// A file in `directory` of at most `most_bytes` bytes, which the operating system deletes with
    /// the process.
    pub fn new(directory: &Path, most_bytes: u64) -> Self {
        CalibratedWeights {
            kept: KeptWeights::new(directory, most_bytes),
            encode_nanos: Mutex::default(),
        }
    }

    /// Keeps the segments of the weight `name`, whose encoder took `nanos` nanoseconds.
    ///
    /// # Errors
    /// `Error::File` for a disk without room.
    pub fn put(
        &self,
        (name, format): (&str, &Format),
        segments: &[&[u8]],
        nanos: u64,
    ) -> Result<(), Error> {
        self.kept.put((name, format), segments, &[]);
        self.times().insert(name.to_owned(), nanos);
        self.failure()
    }

    /// Whether the weight `name` was calibrated.
    pub fn holds(&self, (name, format): (&str, &Format)) -> bool {
        self.kept.holds(name, format)
    }

    /// Fills in the segments of the weight `name`; returns the nanoseconds that its encoder took,
    /// and nothing where it was not calibrated.
    ///
    /// # Errors
    /// `Error::File` for a file that cannot be read.
    pub fn fill(
        &self,
        (name, format): (&str, &Format),
        segments: &mut [&mut [u8]],
    ) -> Result<Option<u64>, Error> {
        let found = self.kept.read((name, format), |segment, at, part| {
            segments[segment][at as usize..][..part.len()].copy_from_slice(part);
            Ok(())
        })?;
        self.failure()?;
        let nanos = || self.times().get(name).copied().unwrap_or_default();
        Ok(found.map(|_| nanos()))
    }

    fn failure(&self) -> Result<(), Error> {
        match self.kept.take_failure() {
            None => Ok(()),
            Some(failure) => Err(Error::File(failure)),
        }
    }

    fn times(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.encode_nanos
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
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
        let weights = CalibratedWeights::new(place.path(), 3);
        weights.put(("a", &format), &[&[1, 2, 3]], 7).expect("room");
        let mut bytes = [0; 3];
        let fill = |name, bytes: &mut [u8]| weights.fill((name, &format), &mut [bytes]);
        assert_eq!(fill("b", &mut bytes).expect("read"), None);
        assert_eq!(fill("a", &mut bytes).expect("read"), Some(7));
        assert_eq!(bytes, [1, 2, 3]);
        let weights = CalibratedWeights::new(&place.path().join("missing"), 3);
        weights
            .put(("a", &format), &[&[1, 2, 3]], 7)
            .expect_err("no folder");
    }
}
