//! Other values in place of a frozen dense param's, and its own bytes back.

use espalier_interface::Stream;

use super::Executor;
use super::transfer::write;
use crate::error::{BackendCall, Result};

impl Executor {
    /// The bytes of a dense param on the device, little-endian.
    ///
    /// # Errors
    /// As [`Executor::param_values`].
    pub fn dense_bytes(&self, param: usize) -> Result<Vec<u8>> {
        let (range, _) = self.dense_range(param).during("download")?;
        let mut bytes = vec![0; range.bytes as usize];
        self.download(range, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes `values`, one for each element of a dense param, rounded to its dtype.
    ///
    /// # Panics
    /// Where there are more or fewer.
    ///
    /// # Errors
    /// As [`Executor::param_values`].
    pub fn replace_dense(&self, param: usize, values: &[f32]) -> Result<()> {
        assert_eq!(values.len() as u64, self.params[param].elements());
        let (range, dtype) = self.dense_range(param).during("upload")?;
        self.changes_state()?;
        let written = write(self.device.as_ref(), values, dtype, range);
        self.since_wait.during("upload", written)
    }

    /// Writes the bytes of [`Executor::dense_bytes`] back.
    ///
    /// # Panics
    /// Where `bytes` are not as long as the param's.
    ///
    /// # Errors
    /// As [`Executor::param_values`].
    pub fn restore_dense(&self, param: usize, bytes: &[u8]) -> Result<()> {
        let (range, _) = self.dense_range(param).during("upload")?;
        assert_eq!(bytes.len() as u64, range.bytes, "bytes of the param");
        self.changes_state()?;
        let written = self.device.upload(bytes, range, Stream(0));
        self.since_wait.during("upload", written)
    }
}
