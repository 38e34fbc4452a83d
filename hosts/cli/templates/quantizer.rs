//! The quantizer `my-plugin`: 16 evenly spaced values, scaled by the largest magnitude of each
//! block of 64.
//!
//! A quantizer describes the memory layout of a packed weight (`format`) and packs one (`encode`).
//! The host asks for the format of every weight before it reads the first, and plans the memory by
//! it. It builds its matrix products and their gradients from it, and moves the packed bytes into
//! checkpoints.

use std::sync::Arc;

use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, Codes, Decoding, Format, SegmentSpec,
};
use espalier_interface::{
    Component, DType, ErrorCode, Instance, OptionKind, OptionSpec, PluginError, Quantizer, Result,
    Role, Services, in_pieces,
};

/// The name by which users choose it: `--plugins my-plugin`.
const NAME: &str = "my-plugin";

/// Codes 0..=15 encode the values -1, -13/15, ..., 1: `code / HALF - 1`.
const HALF: f32 = 7.5;

/// Blocks that a thread packs at once.
const BLOCKS_AT_ONCE: usize = 256;

/// The quantizer with its options. One instance serves a whole run and is called from many threads
/// at once, so it never changes.
struct Absmax {
    block_size: u64,
    services: Arc<dyn Services>,
}

impl Quantizer for Absmax {
    /// The memory layout of a weight of `shape` (rows, columns). The answer must depend on the
    /// shape and the options alone. The host asks long before there is a weight, and again later,
    /// and expects the same answer.
    fn format(&self, shape: [u64; 2]) -> Result<Format> {
        // Shapes may be absurd: `validate` below refuses sizes beyond 64 bits.
        let elements = shape[0].saturating_mul(shape[1]);
        let blocks = elements.div_ceil(self.block_size);
        let format = Format {
            quantizer: NAME.to_owned(),
            shape,
            // The bytes, in the order in which `encode` gets them: a name, a dtype, a number of
            // elements.
            segments: vec![
                SegmentSpec::new("codes", DType::U8, elements.div_ceil(2)),
                SegmentSpec::new("absmax", DType::F32, blocks),
            ],
            // The meaning of the bytes. Element i of the flattened weight is `table[code[i]] *
            // absmax[i / block_size]`. From this the host makes kernels as fast as those of its own
            // quantizers; no code of this crate runs while training. `Decoding::Affine` has zero
            // points, `Decoding::Steps` further numbers, codebooks of vectors and outliers. Where
            // none of them fits, use `Decoding::Callback` and write a `decode`.
            decoding: Decoding::Codebook {
                codes: Codes {
                    segment: 0,
                    bits: 4,
                    order: BitOrder::LowFirst,
                },
                table: (0..16).map(|code| code as f32 / HALF - 1.0).collect(),
                blocks: BlockMap::Flat {
                    size: self.block_size,
                },
                scale: BlockValues::Stored { segment: 1 },
            },
        };
        format.validate()?;
        Ok(format)
    }

    /// Packs one weight, row major. The host has allocated `segments` by the format and copies them
    /// into the model unchanged: write every byte, independent of its earlier value. Called once
    /// for each weight while a run loads.
    fn encode(
        &self,
        weight: &[f32],
        _shape: [u64; 2],
        segments: &mut [&mut [u8]],
        _workspace: &mut [u8],
    ) -> Result<()> {
        // The user must learn of a damaged checkpoint, with the place.
        if let Some(at) = weight.iter().position(|value| !value.is_finite()) {
            let message = format!("element {at} of the weight is not finite");
            return Err(PluginError::new(ErrorCode::NOT_FINITE, message));
        }
        let [codes, absmax] = segments else {
            return Err(PluginError::invalid("expected two segments"));
        };
        // Cut weight and segments into pieces that share no byte, and let the host's threads take
        // them. A plugin starts no threads of its own. For numbers of other widths see
        // `small_float` of the interface; `f32_workspace` gives a workspace as numbers.
        let block = self.block_size as usize;
        let at_once = block * BLOCKS_AT_ONCE;
        let pieces: Vec<_> = weight
            .chunks(at_once)
            .zip(codes.chunks_mut(at_once / 2))
            .zip(absmax.chunks_mut(4 * BLOCKS_AT_ONCE))
            .collect();
        in_pieces(&*self.services, pieces, |((weight, codes), absmax)| {
            let blocks = weight.chunks(block).zip(codes.chunks_mut(block / 2));
            for ((weight, codes), absmax) in blocks.zip(absmax.chunks_exact_mut(4)) {
                absmax.copy_from_slice(&encode_block(weight, codes).to_le_bytes());
            }
        });
        Ok(())
    }
}

// `host quantize` writes weights of quantizers that have a saved form: `saved_form`,
// `quantization_config` and `options_from_saved` of the trait `Quantizer`, which this one leaves at
// their defaults. `host quantize --decoded` needs none.

/// Writes a block's codes, two a byte, the first in the low half, and returns its largest
/// magnitude.
fn encode_block(weight: &[f32], codes: &mut [u8]) -> f32 {
    let absmax = weight.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let code = |x: &f32| match absmax > 0.0 {
        // Division first: a factor of 1 / absmax is infinite for the smallest numbers.
        true => ((x / absmax + 1.0) * HALF).round().clamp(0.0, 15.0) as u8,
        false => 0,
    };
    for (pair, byte) in weight.chunks(2).zip(codes) {
        // The last block of a weight of odd size ends with half a byte.
        *byte = code(&pair[0]) | pair.get(1).map_or(0, code) << 4;
    }
    absmax
}

/// What users can choose. The host reads this from the file without running it, checks every value
/// against type and range, and fills in the defaults.
pub const COMPONENT: Component = Component {
    name: NAME,
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
        Ok(Instance::Quantizer(Box::new(Absmax {
            block_size: options.count("block_size")?,
            services,
        })))
    },
};

// The library's description, and the one function that it exports.
espalier_interface::declare_plugin! {
    name: "my-plugin",
    components: &[COMPONENT],
}
