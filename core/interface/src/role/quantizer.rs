//! Quantizers: a weight in f32 -> named byte segments, and back.

use std::ops::Range;

use serde_json::Value as Json;

use crate::format::Format;
use crate::saved_form::{SavedDescription, SavedForm, SavedModel};
use crate::{DType, Options, PluginError, Result};

/// A quantizer. It describes a format and writes an encoder; kernels, sharding, offload and checkpoints come from the host.
///
/// One that also describes its [`SavedForm`] is used by the host to write checkpoints that the ecosystem reads, and to read
/// such without encoding anew; the component's capability `quant_methods` lists the `quant_method`s it may read.
pub trait Quantizer: Send + Sync {
    /// The layout of a packed weight `[N, M]`: a pure function of `shape` and the options.
    ///
    /// # Errors
    /// `INVALID` where the options do not fit the shape.
    fn format(&self, shape: [u64; 2]) -> Result<Format>;

    /// Packs `weight`, `[N, M]` row major, into `segments`, sized and ordered as [`Quantizer::format`] says.
    ///
    /// # Errors
    /// `NOT_FINITE` for a weight that is not finite, with its place.
    fn encode(
        &self,
        weight: &[f32],
        shape: [u64; 2],
        segments: &mut [&mut [u8]],
        workspace: &mut [u8],
    ) -> Result<()>;

    /// Bytes of workspace that [`Quantizer::encode`] wants; it allocates no more than this much besides.
    ///
    /// # Errors
    /// Those of [`Quantizer::format`].
    fn encode_workspace(&self, shape: [u64; 2]) -> Result<u64> {
        let _ = shape;
        Ok(0)
    }

    /// Unpacks a range of rows and columns into `out`, `[rows.len(), cols.len()]` row major. Re-entrant.
    ///
    /// # Errors
    /// Those of [`Quantizer::format`].
    fn decode(
        &self,
        segments: &[&[u8]],
        shape: [u64; 2],
        rows: Range<u64>,
        cols: Range<u64>,
        out: &mut [f32],
    ) -> Result<()> {
        self.format(shape)?.decode(segments, rows, cols, out)
    }

    /// How a packed weight `[N, M]`, whose dense one was stored as `dtype`, lies in a checkpoint.
    ///
    /// # Errors
    /// `UNSUPPORTED` where there is no form that others read.
    fn saved_form(&self, shape: [u64; 2], dtype: DType) -> Result<SavedForm> {
        let _ = (shape, dtype);
        Err(no_saved_form())
    }

    /// The `quantization_config` of such a checkpoint's `config.json`.
    ///
    /// # Errors
    /// As [`Quantizer::saved_form`].
    fn quantization_config(&self, model: &SavedModel) -> Result<Json> {
        let _ = model;
        Err(no_saved_form())
    }

    /// The options with which a saved weight was packed; the options of this instance do not matter.
    ///
    /// # Errors
    /// `UNSUPPORTED` where another component packed it, `INVALID` where the description contradicts itself.
    fn options_from_saved(&self, saved: &SavedDescription) -> Result<Options> {
        let _ = saved;
        Err(no_saved_form())
    }
}

fn no_saved_form() -> PluginError {
    PluginError::unsupported("this quantizer has no form of checkpoints that others read")
}
