//! The format, and the calls from the interface to encoder and decoder.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, Codes, Decoding, Format, SegmentSpec,
};
use espalier_interface::saved_form::{SavedDescription, SavedForm, SavedModel};
use espalier_interface::{DType, Options, PluginError, Quantizer, Result, Services};
use serde_json::Value as Json;

use crate::bug::Bug;
use crate::{decode, encode, nested, saved};

/// The quantizer, correct or with a bug.
pub struct Planted {
    /// Name of the component.
    pub name: &'static str,
    /// Its bug.
    pub bug: Option<Bug>,
    /// Weights that share a scale.
    pub block_size: u64,
    /// Whether scales are stored in 8 bits.
    pub double_quant: bool,
    /// The host's threads.
    pub services: Arc<dyn Services>,
}

static GLOBAL_BLOCK_SIZE: AtomicU64 = AtomicU64::new(64);

/// For the bug that shares options among all instances.
pub fn set_global_block_size(size: u64) {
    GLOBAL_BLOCK_SIZE.store(size, Ordering::SeqCst);
}

/// The value of each 4-bit code, in units of the block's scale.
pub fn table() -> Vec<f32> {
    (0..16).map(|code| code as f32 / 7.5 - 1.0).collect()
}

impl Planted {
    /// Weights that share a scale.
    pub fn block_size(&self) -> u64 {
        match self.bug {
            Some(Bug::Deaf) => 64,
            Some(Bug::GlobalOptions) => GLOBAL_BLOCK_SIZE.load(Ordering::SeqCst),
            _ => self.block_size,
        }
    }

    /// Number of blocks of a weight.
    pub fn count_blocks(&self, shape: [u64; 2]) -> u64 {
        (shape[0] * shape[1]).div_ceil(self.block_size())
    }
}

impl Quantizer for Planted {
    fn format(&self, shape: [u64; 2]) -> Result<Format> {
        let elements = shape[0].checked_mul(shape[1]);
        let elements = elements.filter(|&count| count > 0).ok_or_else(|| {
            PluginError::invalid(format!("shape {shape:?} has no elements or too many"))
        })?;
        let blocks = self.count_blocks(shape);
        let mut segments = vec![SegmentSpec::new("codes", DType::U8, elements.div_ceil(2))];
        let scale = if self.double_quant {
            segments.extend([
                SegmentSpec::new("absmax", DType::U8, blocks),
                SegmentSpec::new("nested", DType::F32, blocks.div_ceil(nested::SIZE)),
                SegmentSpec::new("offset", DType::F32, 1),
            ]);
            BlockValues::Nested {
                codes: 1,
                table: nested::table(),
                scales: 2,
                size: nested::SIZE,
                offset: 3,
            }
        } else {
            segments.push(SegmentSpec::new("absmax", DType::F32, blocks));
            BlockValues::Stored { segment: 1 }
        };
        let mut table = table();
        if self.bug == Some(Bug::OtherTable) {
            table[5] += 0.01;
        }
        let format = Format {
            quantizer: self.name.to_owned(),
            shape,
            segments,
            decoding: Decoding::Codebook {
                codes: Codes {
                    segment: 0,
                    bits: 4,
                    order: BitOrder::HighFirst,
                },
                table,
                blocks: BlockMap::Flat {
                    size: self.block_size(),
                },
                scale,
            },
        };
        format.validate()?;
        Ok(format)
    }

    fn encode(
        &self,
        weight: &[f32],
        shape: [u64; 2],
        segments: &mut [&mut [u8]],
        workspace: &mut [u8],
    ) -> Result<()> {
        encode::encode(self, weight, shape, segments, workspace)
    }

    /// The scales in f32.
    fn encode_workspace(&self, shape: [u64; 2]) -> Result<u64> {
        match self.bug {
            Some(Bug::WorkspaceOverrun) => Ok(4 * self.count_blocks(shape) - 4),
            _ => Ok(4 * self.count_blocks(shape)),
        }
    }

    fn decode(
        &self,
        segments: &[&[u8]],
        shape: [u64; 2],
        rows: Range<u64>,
        cols: Range<u64>,
        out: &mut [f32],
    ) -> Result<()> {
        decode::decode(self, segments, shape, (rows, cols), out)
    }

    fn saved_form(&self, shape: [u64; 2], _: DType) -> Result<SavedForm> {
        Ok(saved::form(self, &self.format(shape)?))
    }

    fn quantization_config(&self, _: &SavedModel) -> Result<Json> {
        Ok(saved::config(self))
    }

    fn options_from_saved(&self, saved: &SavedDescription) -> Result<Options> {
        saved::options(saved)
    }
}
