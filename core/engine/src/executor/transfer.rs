//! Params, gradients and values: device memory <-> numbers on the host.

use espalier_interface::{BufferRange, DType, Device, PluginError, Result, Stream, WeightLayout};
use espalier_numeric::{numbers, write_numbers};
use espalier_plan::storage_layout::StateKind;

use super::Executor;
use crate::Error;
use crate::error::BackendCall;

/// Bytes moved at once, so that no whole weight is held twice.
pub(super) const CHUNK_BYTES: usize = 1 << 20;

/// Writes f32 numbers to a range of elements of `dtype`, a part at a time.
pub fn write(device: &dyn Device, values: &[f32], dtype: DType, range: BufferRange) -> Result<()> {
    let each = dtype.bytes();
    let step = CHUNK_BYTES / each as usize;
    let mut bytes = Vec::with_capacity(CHUNK_BYTES.min(values.len() * each as usize));
    for (index, part) in values.chunks(step).enumerate() {
        write_numbers(part, dtype, &mut bytes);
        let offset = range.offset + (index * step) as u64 * each;
        device.upload(
            &bytes,
            BufferRange {
                offset,
                bytes: bytes.len() as u64,
                ..range
            },
            Stream(0),
        )?;
    }
    Ok(())
}

impl Executor {
    /// Reads a range of elements of `dtype`.
    pub(super) fn read(&self, range: BufferRange, dtype: DType) -> crate::Result<Vec<f64>> {
        let mut bytes = vec![0; range.bytes as usize];
        self.download(range, &mut bytes)?;
        Ok(numbers(&bytes, dtype))
    }

    /// The values of a dense param.
    ///
    /// # Errors
    /// `UNSUPPORTED` for a param that is packed, cut or not on the device. The error of a call to
    /// the backend.
    pub fn param_values(&self, param: usize) -> crate::Result<Vec<f64>> {
        let (range, dtype) = self.dense_range(param).during("download")?;
        self.read(range, dtype)
    }

    /// The location of a dense param between steps, and its dtype.
    pub(super) fn dense_range(&self, param: usize) -> Result<(BufferRange, DType)> {
        let unsupported = |what: &str| {
            let name = &self.params[param].name;
            Err(PluginError::unsupported(format!("param `{name}` {what}")))
        };
        let WeightLayout::Dense(dtype) = self.params[param].layout else {
            return unsupported("is packed");
        };
        if let Some(&range) = self.storage.param(param).first() {
            return Ok((range, dtype));
        }
        if !self.params[param].trainable {
            return unsupported("is not whole on the device");
        }
        let (elements, range) = self.own_piece(param, StateKind::Values);
        if elements == (0..self.params[param].elements()) {
            Ok((range, dtype))
        } else {
            unsupported("is cut among ranks")
        }
    }

    /// Passes the values of a dense param as f32, a part at a time.
    ///
    /// # Errors
    /// `Error::Plugin` for a param that is packed, cut or not on the device, and for a call to the
    /// backend that failed. The error of `take`.
    pub fn param_parts<E: From<Error>>(
        &self,
        param: usize,
        take: &mut dyn FnMut(&[f32]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let (range, dtype) = self.dense_range(param).during("download")?;
        let step = CHUNK_BYTES as u64;
        let mut at = 0;
        while at < range.bytes {
            let bytes = step.min(range.bytes - at);
            let part = BufferRange {
                offset: range.offset + at,
                bytes,
                ..range
            };
            let values = self.read(part, dtype)?.into_iter();
            let values: Vec<f32> = values.map(|x| x as f32).collect();
            take(&values)?;
            at += bytes;
        }
        Ok(())
    }

    /// This rank's elements of the gradient of a trainable param. A cut gradient is the last step's
    /// sum over micro-batches and ranks; another one is the sum since it was zeroed.
    ///
    /// # Errors
    /// `PluginError`: a call to the backend failed. `UNSUPPORTED` where gradients are applied in
    /// the backward pass: none is kept.
    pub fn gradient_values(&self, param: usize) -> crate::Result<Vec<f64>> {
        if self.shard_layout.updates_in_backward {
            let none = "the gradients of a run that applies them in the backward pass";
            let given = Err(PluginError::unsupported(none));
            return given.during("download");
        }
        let (_, range) = self.own_piece(param, StateKind::Gradients);
        self.read(range, self.dtypes.gradients)
    }

    /// Sets a dense param.
    ///
    /// # Errors
    /// `UNSUPPORTED` for a param that is packed, cut or not on the device. The error of a call to
    /// the backend.
    pub fn set_param(&self, param: usize, values: &[f32]) -> crate::Result<()> {
        let (range, dtype) = self.dense_range(param).during("upload")?;
        self.changes_state()?;
        let written = write(self.device.as_ref(), values, dtype, range);
        self.since_wait.during("upload", written)
    }
}
