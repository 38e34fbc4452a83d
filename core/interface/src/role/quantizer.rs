//! Quantizers: a weight in f32 -> named byte segments, and back.

use std::ops::Range;

use crate::Result;
use crate::format::Format;

/// A quantizer. It describes a format and writes an encoder; kernels, sharding, offload and checkpoints come from the host.
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
    fn encode_workspace(&self, shape: [u64; 2]) -> u64 {
        let _ = shape;
        0
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
}
