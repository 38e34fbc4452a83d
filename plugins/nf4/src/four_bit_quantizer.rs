//! The options of `nf4` and `fp4` -> how they store a weight: codes and absmax, the absmax plain or
//! quantized again.

use std::sync::Arc;

use espalier_interface::dynamic_map::SIGNED;
use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, Codes, Decoding, Format, SegmentSpec,
};
use espalier_interface::{DType, Result, Services};

use crate::four_bit::FourBit;
use crate::nested::NESTED_BLOCK_SIZE;
use crate::shape::count_elements;

/// How a weight's absmax is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbsmaxStore {
    /// One f32 a block.
    Plain,
    /// One 8-bit code per block, one f32 for 256 of them, one f32 offset (double quantization).
    Nested,
}

/// The quantizer of a 4-bit codebook.
pub struct FourBitQuantizer {
    /// Name of the component.
    pub name: &'static str,
    /// Table and block size.
    pub encoder: FourBit,
    /// How absmax is stored.
    pub absmax: AbsmaxStore,
    /// The host's threads.
    pub services: Arc<dyn Services>,
}

impl FourBitQuantizer {
    /// How a weight of `shape`, `[out, in]`, is stored.
    ///
    /// # Errors
    /// `INVALID` for more elements than 64 bits can count.
    pub fn format(&self, shape: [u64; 2]) -> Result<Format> {
        let num_blocks = self.count_blocks(shape)?;
        let mut segments = vec![SegmentSpec::new(
            "codes",
            DType::U8,
            count_elements(shape)?.div_ceil(2),
        )];
        let scale = match self.absmax {
            AbsmaxStore::Plain => {
                segments.push(SegmentSpec::new("absmax", DType::F32, num_blocks));
                BlockValues::Stored { segment: 1 }
            }
            AbsmaxStore::Nested => {
                let size = NESTED_BLOCK_SIZE as u64;
                let num_scales = num_blocks.div_ceil(size);
                segments.extend([
                    SegmentSpec::new("absmax", DType::U8, num_blocks),
                    SegmentSpec::new("nested_absmax", DType::F32, num_scales),
                    SegmentSpec::new("nested_offset", DType::F32, 1),
                ]);
                BlockValues::Nested {
                    codes: 1,
                    table: SIGNED.values.to_vec(),
                    scales: 2,
                    size,
                    offset: 3,
                }
            }
        };
        Ok(Format {
            quantizer: self.name.to_owned(),
            shape,
            segments,
            decoding: Decoding::Codebook {
                codes: Codes {
                    segment: 0,
                    bits: 4,
                    order: BitOrder::HighFirst,
                },
                table: self.encoder.codebook.values.to_vec(),
                blocks: BlockMap::Flat {
                    size: self.encoder.block_size as u64,
                },
                scale,
            },
        })
    }

    pub(super) fn count_blocks(&self, shape: [u64; 2]) -> Result<u64> {
        Ok(count_elements(shape)?.div_ceil(self.encoder.block_size as u64))
    }
}
