//! The quantizers `mxfp4` and `nvfp4`: how they store a weight.

use std::sync::Arc;

use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, Codes, Decoding, Format, SegmentSpec, TableScale,
};
use espalier_interface::{DType, Result, Services};

use crate::block::count;
use crate::{e2m1, e4m3, e8m0};

/// How a block's scale is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scales {
    /// A power of two (`mxfp4`).
    E8M0,
    /// A float of 8 bits, over one f32 of the whole weight (`nvfp4`).
    E4M3,
}

/// A quantizer to E2M1 in blocks with scales of 8 bits.
pub struct ScaledFloat {
    /// How scales are stored.
    pub scales: Scales,
    /// The host's threads.
    pub services: Arc<dyn Services>,
}

impl ScaledFloat {
    /// Name of the component.
    pub fn name(&self) -> &'static str {
        match self.scales {
            Scales::E8M0 => "mxfp4",
            Scales::E4M3 => "nvfp4",
        }
    }

    /// Elements of a block.
    pub fn block_size(&self) -> u64 {
        match self.scales {
            Scales::E8M0 => 32,
            Scales::E4M3 => 16,
        }
    }

    /// The stored scales of blocks, and the segments of them behind the codes.
    fn block_values(&self, blocks: u64) -> (BlockValues, Vec<SegmentSpec>) {
        let codes = Codes {
            segment: 1,
            bits: 8,
            order: BitOrder::LowFirst,
        };
        let mut segments = vec![SegmentSpec::new("scale", DType::U8, blocks)];
        let values = match self.scales {
            Scales::E8M0 => BlockValues::Table {
                codes,
                table: e8m0::values(),
                not_numbers: vec![e8m0::NAN],
                scale: None,
            },
            Scales::E4M3 => {
                segments.push(SegmentSpec::new("global_scale", DType::F32, 1));
                BlockValues::Table {
                    codes,
                    table: e4m3::values(),
                    not_numbers: e4m3::NANS.to_vec(),
                    scale: Some(TableScale::Over { segment: 2 }),
                }
            }
        };
        (values, segments)
    }

    /// How a weight of `shape`, `[out, in]`, is stored.
    ///
    /// # Errors
    /// `INVALID` for rows that are not whole blocks.
    pub fn format(&self, shape: [u64; 2]) -> Result<Format> {
        let size = self.block_size();
        let (elements, blocks) = count(self.name(), shape, size)?;
        let mut segments = vec![SegmentSpec::new("codes", DType::U8, elements / 2)];
        let (scale, of_scales) = self.block_values(blocks);
        segments.extend(of_scales);
        Ok(Format {
            quantizer: self.name().to_owned(),
            shape,
            segments,
            decoding: Decoding::Codebook {
                codes: Codes {
                    segment: 0,
                    bits: 4,
                    order: BitOrder::LowFirst,
                },
                table: e2m1::VALUES.to_vec(),
                blocks: BlockMap::Flat { size },
                scale,
            },
        })
    }
}
