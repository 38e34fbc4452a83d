//! `int8`: a weight -> codes of the signed dynamic map and absmax.

use std::sync::Arc;

use espalier_interface::dynamic_map::SIGNED;
use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, Codes, Decoding, Format, SegmentSpec,
};
use espalier_interface::saved_form::SavedForm;
use espalier_interface::{DType, PluginError, Quantizer, Result, Services};

use crate::eight_bit::EightBit;
use crate::shape::count_elements;
use crate::span::encode_blocks;

/// The quantizer of bitsandbytes' block-wise 8 bits.
pub struct EightBitQuantizer {
    /// Weights a block, a power of two from 64 to 4096.
    pub block_size: usize,
    /// The host's threads.
    pub services: Arc<dyn Services>,
}

impl Quantizer for EightBitQuantizer {
    fn format(&self, shape: [u64; 2]) -> Result<Format> {
        let num_elements = count_elements(shape)?;
        let size = self.block_size as u64;
        Ok(Format {
            quantizer: "int8".to_owned(),
            shape,
            segments: vec![
                SegmentSpec::new("codes", DType::U8, num_elements),
                SegmentSpec::new("absmax", DType::F32, num_elements.div_ceil(size)),
            ],
            decoding: Decoding::Codebook {
                codes: Codes {
                    segment: 0,
                    bits: 8,
                    order: BitOrder::HighFirst,
                },
                table: SIGNED.values.to_vec(),
                blocks: BlockMap::Flat { size },
                scale: BlockValues::Stored { segment: 1 },
            },
        })
    }

    fn encode(
        &self,
        weight: &[f32],
        _shape: [u64; 2],
        segments: &mut [&mut [u8]],
        _workspace: &mut [u8],
    ) -> Result<()> {
        let [codes, absmax] = segments else {
            panic!("{} segments are not of this format", segments.len());
        };
        let services = self.services.as_ref();
        encode_blocks(&EightBit, weight, self.block_size, codes, absmax, services)
    }

    /// None: checkpoints of 8-bit weights hold LLM.int8's, which have one scale per row and even
    /// steps.
    fn saved_form(&self, _shape: [u64; 2], _dtype: DType) -> Result<SavedForm> {
        Err(PluginError::unsupported(
            "bitsandbytes' block-wise 8 bits are for states and activations: no loader takes weights packed so \
             (its 8-bit checkpoints are LLM.int8, another format); choose nf4 or fp4",
        ))
    }
}
