//! `nf4` and `fp4`: a weight -> codes and absmax, the absmax plain or quantized again.

use std::sync::Arc;

use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, Codes, Decoding, Format, SegmentSpec,
};
use espalier_interface::saved_form::{SavedDescription, SavedForm, SavedModel};
use espalier_interface::{DType, Options, Quantizer, Result, Services};
use serde_json::Value as Json;

use crate::dynamic_map::DYNAMIC_SIGNED;
use crate::four_bit::FourBit;
use crate::nested::{NESTED_BLOCK_SIZE, Nested, encode_absmax};
use crate::saved;
use crate::shape::count_elements;
use crate::span::encode_blocks;

/// How a weight's absmax is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbsmaxStore {
    /// One f32 a block.
    Plain,
    /// One 8-bit code a block, one f32 for 256 of them, one f32 offset (double quantization).
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
    fn count_blocks(&self, shape: [u64; 2]) -> Result<u64> {
        Ok(count_elements(shape)?.div_ceil(self.encoder.block_size as u64))
    }
}

impl Quantizer for FourBitQuantizer {
    fn format(&self, shape: [u64; 2]) -> Result<Format> {
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
                    table: DYNAMIC_SIGNED.to_vec(),
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

    fn encode(
        &self,
        weight: &[f32],
        shape: [u64; 2],
        segments: &mut [&mut [u8]],
        workspace: &mut [u8],
    ) -> Result<()> {
        let block_size = self.encoder.block_size;
        let services = self.services.as_ref();
        match segments {
            [codes, absmax] => {
                encode_blocks(&self.encoder, weight, block_size, codes, absmax, services)
            }
            [codes, absmax_codes, nested_absmax, offset] => {
                let absmax = &mut workspace[..self.encode_workspace(shape)? as usize];
                encode_blocks(&self.encoder, weight, block_size, codes, absmax, services)?;
                let nested = Nested {
                    codes: absmax_codes,
                    absmax: nested_absmax,
                    offset,
                };
                encode_absmax(absmax, nested, services)
            }
            _ => panic!("{} segments are not of this format", segments.len()),
        }
    }

    /// The plain absmax, before it is quantized.
    fn encode_workspace(&self, shape: [u64; 2]) -> Result<u64> {
        match self.absmax {
            AbsmaxStore::Plain => Ok(0),
            AbsmaxStore::Nested => Ok(4 * self.count_blocks(shape)?),
        }
    }

    fn saved_form(&self, shape: [u64; 2], dtype: DType) -> Result<SavedForm> {
        saved::form(self, shape, dtype)
    }

    fn quantization_config(&self, model: &SavedModel) -> Result<Json> {
        Ok(saved::config(self, model))
    }

    fn options_from_saved(&self, saved: &SavedDescription) -> Result<Options> {
        saved::options(self, saved)
    }
}
