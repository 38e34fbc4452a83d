//! The quantizer `linear4`: 16 evenly spaced values, scaled by the largest magnitude of each block.
//! Described as data, so the host decodes and multiplies with its own kernels.

use std::sync::{Arc, Mutex};

use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, Codes, Decoding, Format, SegmentSpec,
};
use espalier_interface::{
    Component, DType, ErrorCode, Instance, OptionKind, OptionSpec, PluginError, Quantizer, Result,
    Role, Services,
};

/// Half the largest code: codes 0..=15 map to -1..=1.
const HALF: f32 = 7.5;

/// Blocks that one call of a parallel loop encodes.
const BLOCKS_AT_ONCE: usize = 256;

struct Linear4 {
    block_size: u64,
    services: Arc<dyn Services>,
}

impl Quantizer for Linear4 {
    fn format(&self, shape: [u64; 2]) -> Result<Format> {
        let elements = shape[0].saturating_mul(shape[1]);
        let table = (0..16).map(|code| code as f32 / HALF - 1.0).collect();
        let format = Format {
            quantizer: "linear4".to_owned(),
            shape,
            segments: vec![
                SegmentSpec::new("codes", DType::U8, elements.div_ceil(2)),
                SegmentSpec::new("absmax", DType::F32, elements.div_ceil(self.block_size)),
            ],
            decoding: Decoding::Codebook {
                codes: Codes {
                    segment: 0,
                    bits: 4,
                    order: BitOrder::LowFirst,
                },
                table,
                blocks: BlockMap::Flat {
                    size: self.block_size,
                },
                scale: BlockValues::Stored { segment: 1 },
            },
        };
        format.validate()?;
        Ok(format)
    }

    fn encode(
        &self,
        weight: &[f32],
        _: [u64; 2],
        segments: &mut [&mut [u8]],
        _: &mut [u8],
    ) -> Result<()> {
        if let Some(at) = weight.iter().position(|x| !x.is_finite()) {
            let message = format!("element {at} is not finite");
            return Err(PluginError::new(ErrorCode::NOT_FINITE, message));
        }
        let [codes, absmax] = segments else {
            return Err(PluginError::invalid("expected two segments"));
        };
        let block = self.block_size as usize;
        // A block holds whole bytes, so that chunks of blocks share nothing.
        let chunk = block * BLOCKS_AT_ONCE;
        let pieces: Vec<_> = weight
            .chunks(chunk)
            .zip(codes.chunks_mut(chunk / 2))
            .zip(absmax.chunks_mut(4 * BLOCKS_AT_ONCE))
            .map(Mutex::new)
            .collect();
        self.services.parallel_for(pieces.len(), &|index| {
            let mut piece = pieces[index].lock().expect("each is taken once");
            let ((weight, codes), absmax) = &mut *piece;
            let blocks = weight.chunks(block).zip(codes.chunks_mut(block / 2));
            for ((weight, codes), absmax) in blocks.zip(absmax.chunks_exact_mut(4)) {
                absmax.copy_from_slice(&encode_block(weight, codes).to_le_bytes());
            }
        });
        Ok(())
    }
}

/// Writes a block's codes, the first of a pair in the low half of its byte, and returns its largest
/// magnitude.
fn encode_block(weight: &[f32], codes: &mut [u8]) -> f32 {
    let absmax = weight.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let factor = if absmax > 0.0 { HALF / absmax } else { 0.0 };
    let code = |x: &f32| (x * factor + HALF).round().clamp(0.0, 15.0) as u8;
    for (pair, byte) in weight.chunks(2).zip(codes) {
        *byte = code(&pair[0]) | pair.get(1).map_or(0, code) << 4;
    }
    absmax
}

const LINEAR4: Component = Component {
    name: "linear4",
    role: Role::QUANTIZER,
    doc: "16 evenly spaced values, scaled by the largest magnitude of each block",
    options: &[OptionSpec {
        name: "block_size",
        kind: OptionKind::INTEGER,
        default: "64",
        range: "32..=4096, power of two",
        doc: "weights that share a scale",
    }],
    capabilities: &[],
    create: |options, services| {
        Ok(Instance::Quantizer(Box::new(Linear4 {
            block_size: options.count("block_size")?,
            services,
        })))
    },
};

espalier_interface::declare_plugin! { name: "linear4", components: &[LINEAR4] }
