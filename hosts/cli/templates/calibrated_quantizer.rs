//! The quantizer `my-plugin`: 16 evenly spaced values, scaled for each block of 64 by the number
//! that changes the outputs of the weight least.
//!
//! It is calibrated: it asks the host for statistics of a weight's inputs (`calibration`), and
//! packs the weight with them (`encode_calibrated`). The host takes them from training rows that it
//! runs through the model, layer by layer.
//!
//! A quantizer describes the memory layout of a packed weight (`format`) and packs one (`encode`).
//! The host asks for the format of every weight before it reads the first, and plans the memory by
//! it. It builds its matrix products and their gradients from it, and moves the packed bytes into
//! checkpoints.

use std::sync::{Arc, Mutex};

use espalier_interface::calibration::{CalibratedCall, Calibration, InputsFrom, Statistic};
use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, Codes, Decoding, Format, SegmentSpec,
};
use espalier_interface::{
    Component, DType, ErrorCode, Instance, OptionKind, OptionSpec, PluginError, Quantizer, Result,
    Role, Services,
};

/// The name by which users choose it: `--plugins my-plugin`.
const NAME: &str = "my-plugin";

/// Codes 0..=15 encode the values -1, -13/15, ..., 1: `code / HALF - 1`.
const HALF: f32 = 7.5;

/// What is tried as the scale of a block: its largest magnitude, and less of it down to a half.
const STEPS: u32 = 10;

/// Blocks that a thread packs at once.
const BLOCKS_AT_ONCE: usize = 256;

/// The quantizer with its options. One instance serves a whole run and is called from many threads
/// at once, so it never changes.
struct Searched {
    block_size: u64,
    services: Arc<dyn Services>,
}

impl Quantizer for Searched {
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
                SegmentSpec::new("scales", DType::F32, blocks),
            ],
            // The meaning of the bytes. Element i of the flattened weight is `table[code[i]] *
            // scales[i / block_size]`. From this the host makes kernels as fast as those of its own
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

    /// What is asked of a weight's inputs `x`: here the mean of `x_c^2` for each channel `c`.
    /// Others are the largest `|x_c|`, and the Gram matrix, the sum of `x x^T`. The inputs can come
    /// from the dense model or from layers that are packed already.
    fn calibration(&self, _site: &str, shape: [u64; 2]) -> Result<Option<Calibration>> {
        self.format(shape)?;
        Ok(Some(Calibration {
            statistics: vec![Statistic::MeanSquare],
            inputs: InputsFrom::Dense,
        }))
    }

    /// Packs one weight with these statistics. The host has allocated the segments by the format
    /// and copies them into the model unchanged: write every byte, independent of its earlier
    /// value.
    fn encode_calibrated(&self, call: CalibratedCall<'_, '_>) -> Result<()> {
        let importance = call.channels(Statistic::MeanSquare);
        let importance = importance.ok_or_else(|| PluginError::invalid("no mean squares"))?;
        self.pack(call.weight, Some(importance), call.segments)
    }

    /// Packs one weight without statistics, which the host does where there are no inputs: for a
    /// model of random numbers, for example.
    fn encode(
        &self,
        weight: &[f32],
        _shape: [u64; 2],
        segments: &mut [&mut [u8]],
        _workspace: &mut [u8],
    ) -> Result<()> {
        self.pack(weight, None, segments)
    }
}

impl Searched {
    /// Packs a weight, row major. `importance` is that of each column, `[M]`.
    fn pack(
        &self,
        weight: &[f32],
        importance: Option<&[f32]>,
        segments: &mut [&mut [u8]],
    ) -> Result<()> {
        // The user must learn of a damaged checkpoint, with the place.
        if let Some(at) = weight.iter().position(|value| !value.is_finite()) {
            let message = format!("element {at} of the weight is not finite");
            return Err(PluginError::new(ErrorCode::NOT_FINITE, message));
        }
        let [codes, scales] = segments else {
            return Err(PluginError::invalid("expected two segments"));
        };
        // Cut weight and segments into pieces that share no byte, and let the host's threads take
        // them. A plugin starts no threads of its own.
        let block = self.block_size as usize;
        let at_once = block * BLOCKS_AT_ONCE;
        let pieces: Vec<_> = weight
            .chunks(at_once)
            .zip(codes.chunks_mut(at_once / 2))
            .zip(scales.chunks_mut(4 * BLOCKS_AT_ONCE))
            .map(Mutex::new)
            .collect();
        self.services.parallel_for(pieces.len(), &|index| {
            let mut piece = pieces[index].lock().expect("each piece is taken once");
            let ((weight, codes), scales) = &mut *piece;
            let blocks = weight.chunks(block).zip(codes.chunks_mut(block / 2));
            let blocks = blocks.zip(scales.chunks_exact_mut(4)).enumerate();
            for (number, ((weight, codes), scale)) in blocks {
                let first = index * at_once + number * block;
                // Element `first + at` of the weight is in column `(first + at) % M`.
                let of = |at: usize| match importance {
                    Some(importance) => importance[(first + at) % importance.len()],
                    None => 1.0,
                };
                let best = best_scale(weight, of);
                write_codes(weight, best, codes);
                scale.copy_from_slice(&best.to_le_bytes());
            }
        });
        Ok(())
    }
}

/// The scale of a block: of those that are tried, the one with the least sum of the squared errors,
/// each times the importance of its column.
fn best_scale(weight: &[f32], importance: impl Fn(usize) -> f32) -> f32 {
    let absmax = weight.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let mut best = (f64::INFINITY, absmax);
    for step in 0..=STEPS {
        let scale = absmax * (1.0 - 0.05 * step as f32);
        let errors = weight.iter().enumerate().map(|(at, &x)| {
            let error = x - (f32::from(code(x, scale)) / HALF - 1.0) * scale;
            f64::from(importance(at)) * f64::from(error) * f64::from(error)
        });
        let error = errors.sum();
        if error < best.0 {
            best = (error, scale);
        }
    }
    best.1
}

/// The nearest code of a weight.
fn code(x: f32, scale: f32) -> u8 {
    match scale > 0.0 {
        // Division first: a factor of 1 / scale is infinite for the smallest numbers.
        true => ((x / scale + 1.0) * HALF).round().clamp(0.0, 15.0) as u8,
        false => 0,
    }
}

/// Writes a block's codes, two a byte, the first in the low half.
fn write_codes(weight: &[f32], scale: f32, codes: &mut [u8]) {
    for (pair, byte) in weight.chunks(2).zip(codes) {
        // The last block of a weight of odd size ends with half a byte.
        let second = pair.get(1).map_or(0, |&x| code(x, scale));
        *byte = code(pair[0], scale) | second << 4;
    }
}

/// What users can choose. The host reads this from the file without running it, checks every value
/// against type and range, and fills in the defaults.
pub const COMPONENT: Component = Component {
    name: NAME,
    role: Role::QUANTIZER,
    doc: "16 evenly spaced values, scaled for each block so that outputs change least",
    options: &[OptionSpec {
        name: "block_size",
        kind: OptionKind::INTEGER,
        default: "64",
        range: "32..=4096, power of two",
        doc: "weights that share a scale",
    }],
    capabilities: &[],
    create: |options, services| {
        Ok(Instance::Quantizer(Box::new(Searched {
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
