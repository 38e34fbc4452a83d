//! Quantizers: a weight in f32 -> named byte segments, and back.

use std::ops::Range;

use serde_json::Value as Json;

use crate::calibration::{CalibratedCall, Calibration};
use crate::format::{DeviceCode, Format};
use crate::saved_form::{SavedDescription, SavedForm, SavedModel};
use crate::{DType, Options, PluginError, Result};

/// A quantizer. It describes a format and writes an encoder. The host provides kernels, sharding,
/// offload and checkpoints.
///
/// With a [`SavedForm`], the host writes checkpoints that other tools read, and reads theirs
/// without encoding again. The component's capability `quant_methods` lists the `quant_method`s
/// that it may read.
pub trait Quantizer: Send + Sync {
    /// The layout of a packed weight `[N, M]`: a pure function of `shape` and the options.
    ///
    /// # Errors
    /// `INVALID` where the options do not fit the shape.
    fn format(&self, shape: [u64; 2]) -> Result<Format>;

    /// Packs `weight`, `[N, M]` row major, into `segments`, sized and ordered as
    /// [`Quantizer::format`] says.
    ///
    /// # Errors
    /// `NOT_FINITE` for a weight with an element that is not finite, with its index.
    fn encode(
        &self,
        weight: &[f32],
        shape: [u64; 2],
        segments: &mut [&mut [u8]],
        workspace: &mut [u8],
    ) -> Result<()>;

    /// Bytes of workspace that [`Quantizer::encode`] needs. It may itself allocate at most this
    /// many bytes more.
    ///
    /// # Errors
    /// Those of [`Quantizer::format`].
    fn encode_workspace(&self, shape: [u64; 2]) -> Result<u64> {
        let _ = shape;
        Ok(0)
    }

    /// Decodes a range of rows and columns into `out`, `[rows.len(), cols.len()]` row major.
    /// Several threads may call it at once.
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

    /// The statistics of its inputs with which the weight of `site`, `[N, M]`, is packed; none
    /// where [`Quantizer::encode`] packs it. A pure function of site, shape and options.
    ///
    /// Where a weight has no inputs to take statistics of (a base of random numbers),
    /// [`Quantizer::encode`] packs it also by a quantizer that wants some.
    ///
    /// # Errors
    /// Those of [`Quantizer::format`].
    fn calibration(&self, site: &str, shape: [u64; 2]) -> Result<Option<Calibration>> {
        let _ = (site, shape);
        Ok(None)
    }

    /// Bytes of workspace that [`Quantizer::encode_calibrated`] needs. It may itself allocate at
    /// most this many bytes more.
    ///
    /// # Errors
    /// Those of [`Quantizer::format`].
    fn calibrated_workspace(&self, shape: [u64; 2]) -> Result<u64> {
        let _ = shape;
        Ok(0)
    }

    /// Packs a weight as [`Quantizer::encode`] does, with the statistics that
    /// [`Quantizer::calibration`] asks for.
    ///
    /// # Errors
    /// As [`Quantizer::encode`]; `UNSUPPORTED` for a quantizer that wants no statistics.
    fn encode_calibrated(&self, call: CalibratedCall<'_, '_>) -> Result<()> {
        Err(PluginError::unsupported(format!(
            "this quantizer packs `{}` without statistics of its inputs",
            call.site
        )))
    }

    /// Code that decodes a format that has no description ([`crate::format::Decoding::Callback`])
    /// on devices. None where there is no such code, or where the format is described: a
    /// description is all that a device needs.
    ///
    /// # Errors
    /// `INVALID` where the options do not fit.
    fn device_code(&self) -> Result<Option<DeviceCode>> {
        Ok(None)
    }

    /// The tensors of a packed weight `[N, M]` in a checkpoint; the dense weight had the dtype
    /// `dtype`.
    ///
    /// # Errors
    /// `UNSUPPORTED` where no other tool reads such weights.
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

    /// The options with which a saved weight was packed. They do not depend on the options of this
    /// instance.
    ///
    /// # Errors
    /// `UNSUPPORTED` where another component packed it, `INVALID` where the description contradicts
    /// itself.
    fn options_from_saved(&self, saved: &SavedDescription) -> Result<Options> {
        let _ = saved;
        Err(no_saved_form())
    }
}

fn no_saved_form() -> PluginError {
    PluginError::unsupported("this quantizer has no form of checkpoints that others read")
}
