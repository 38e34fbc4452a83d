//! `nf4` and `fp4`: a weight -> codes and absmax.

use espalier_interface::format::Format;
use espalier_interface::saved_form::{SavedDescription, SavedForm, SavedModel};
use espalier_interface::{DType, Options, Quantizer, Result};
use serde_json::Value as Json;

use crate::four_bit_quantizer::{AbsmaxStore, FourBitQuantizer};
use crate::nested::{Nested, encode_absmax};
use crate::saved;
use crate::span::encode_blocks;

impl Quantizer for FourBitQuantizer {
    fn format(&self, shape: [u64; 2]) -> Result<Format> {
        FourBitQuantizer::format(self, shape)
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
