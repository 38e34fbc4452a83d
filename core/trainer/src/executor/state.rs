//! Trainable params and their moments as stored bytes: what lives from one step to the next.

use espalier_interface::{BufferRange, DType, PluginError, Result, Stream, WeightLayout};

use super::Executor;
use super::transfer::CHUNK_BYTES;

/// What a trainable param keeps from step to step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatePart {
    /// Its values.
    Values,
    /// AdamW's mean of gradients.
    FirstMoment,
    /// AdamW's mean of squared gradients.
    SecondMoment,
}

impl Executor {
    /// Indices of the trainable params, in their order.
    pub fn trainable(&self) -> Vec<usize> {
        let params = self.params.iter().enumerate();
        let trainable = params.filter(|(_, param)| param.trainable);
        trainable.map(|(index, _)| index).collect()
    }

    /// The dtype in which a part of a trainable param lies on the device.
    pub fn state_dtype(&self, param: usize, part: StatePart) -> DType {
        match (&self.params[param].layout, part) {
            (WeightLayout::Dense(dtype), StatePart::Values) => *dtype,
            _ => self.dtypes.reduce,
        }
    }

    /// Passes the bytes of a part of a trainable param, little-endian, at most 1 MiB at once.
    ///
    /// # Errors
    /// What the backend or `take` reports.
    pub fn download_state<E: From<PluginError>>(
        &self,
        param: usize,
        part: StatePart,
        take: &mut dyn FnMut(&[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let whole = self.state_range(param, part);
        let mut bytes = vec![0; CHUNK_BYTES.min(whole.bytes as usize)];
        let mut done = 0;
        while done < whole.bytes {
            let count = bytes.len().min((whole.bytes - done) as usize);
            let range = BufferRange {
                offset: whole.offset + done,
                bytes: count as u64,
                ..whole
            };
            self.device
                .download(range, &mut bytes[..count], Stream(0))?;
            take(&bytes[..count])?;
            done += count as u64;
        }
        Ok(())
    }

    /// Writes `bytes`, little-endian, from byte `offset` of a part of a trainable param on.
    ///
    /// # Errors
    /// `INVALID` for bytes beyond its end; what the backend reports.
    pub fn upload_state(
        &self,
        param: usize,
        part: StatePart,
        offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let whole = self.state_range(param, part);
        let end = offset + bytes.len() as u64;
        if end > whole.bytes {
            return Err(PluginError::invalid(format!(
                "param `{}` has {} bytes, {end} were given",
                self.params[param].name, whole.bytes
            )));
        }
        let range = BufferRange {
            offset: whole.offset + offset,
            bytes: bytes.len() as u64,
            ..whole
        };
        self.device.upload(bytes, range, Stream(0))
    }

    pub(super) fn state_range(&self, param: usize, part: StatePart) -> BufferRange {
        match part {
            StatePart::Values => self.storage.param(param)[0],
            StatePart::FirstMoment => self.storage.moments(param)[0],
            StatePart::SecondMoment => self.storage.moments(param)[1],
        }
    }
}
