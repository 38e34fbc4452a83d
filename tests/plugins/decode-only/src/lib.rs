//! The quantizer `decode-only`: 8 values that are denser near zero, codes of 3 bits that cross byte
//! boundaries, and one scale per block. No description covers such codes: to read a weight, the
//! host calls `decode`, and devices run the device code.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use espalier_interface::format::{Decoding, DeviceCode, Format, SegmentSpec};
use espalier_interface::{
    Component, DType, ErrorCode, Instance, PluginError, Quantizer, Result, Role, Services,
};

/// Weights that share a scale; their codes fill whole bytes, so that blocks share none.
const BLOCK: usize = 64;
/// Bytes of a block's codes.
const CODE_BYTES: usize = 3 * BLOCK / 8;
/// Blocks that one call of a parallel loop encodes.
const BLOCKS_AT_ONCE: usize = 256;
/// The value of each code: the seven and one quantiles of the normal distribution, including zero.
const TABLE: [f32; 8] = [-1.0, -0.5783, -0.3202, 0.0, 0.2123, 0.4418, 0.6923, 1.0];

/// What `decode` does, for devices.
const DEVICE_CODE: &str = include_str!("decode.cu");

struct DecodeOnly {
    services: Arc<dyn Services>,
}

impl Quantizer for DecodeOnly {
    fn format(&self, shape: [u64; 2]) -> Result<Format> {
        let blocks = shape[0].saturating_mul(shape[1]).div_ceil(BLOCK as u64);
        Ok(Format {
            quantizer: "decode-only".to_owned(),
            shape,
            segments: vec![
                SegmentSpec::new("codes", DType::U8, blocks.saturating_mul(CODE_BYTES as u64)),
                SegmentSpec::new("absmax", DType::F32, blocks),
            ],
            decoding: Decoding::Callback,
        })
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
        let pieces: Vec<_> = weight
            .chunks(BLOCK * BLOCKS_AT_ONCE)
            .zip(codes.chunks_mut(CODE_BYTES * BLOCKS_AT_ONCE))
            .zip(absmax.chunks_mut(4 * BLOCKS_AT_ONCE))
            .map(Mutex::new)
            .collect();
        self.services.parallel_for(pieces.len(), &|index| {
            let mut piece = pieces[index].lock().expect("each is taken once");
            let ((weight, codes), absmax) = &mut *piece;
            let blocks = weight.chunks(BLOCK).zip(codes.chunks_exact_mut(CODE_BYTES));
            for ((weight, codes), absmax) in blocks.zip(absmax.chunks_exact_mut(4)) {
                absmax.copy_from_slice(&encode_block(weight, codes).to_le_bytes());
            }
        });
        Ok(())
    }

    fn device_code(&self) -> Result<Option<DeviceCode>> {
        Ok(Some(DeviceCode::cuda(DEVICE_CODE)))
    }

    fn decode(
        &self,
        segments: &[&[u8]],
        shape: [u64; 2],
        rows: Range<u64>,
        cols: Range<u64>,
        out: &mut [f32],
    ) -> Result<()> {
        let [codes, absmax] = segments else {
            return Err(PluginError::invalid("expected two segments"));
        };
        let width = (cols.end - cols.start) as usize;
        for (row, out) in rows.zip(out.chunks_exact_mut(width.max(1))) {
            let mut flat = (row * shape[1] + cols.start) as usize;
            let mut rest = out;
            while !rest.is_empty() {
                let (block, first) = (flat / BLOCK, flat % BLOCK);
                let (part, after) = rest.split_at_mut(rest.len().min(BLOCK - first));
                let codes = &codes[block * CODE_BYTES..(block + 1) * CODE_BYTES];
                let scale = absmax[4 * block..4 * block + 4].try_into();
                let scale = f32::from_le_bytes(scale.expect("four bytes"));
                for (index, out) in (first..).zip(part.iter_mut()) {
                    *out = TABLE[code(codes, index)] * scale;
                }
                flat += part.len();
                rest = after;
            }
        }
        Ok(())
    }
}

/// Code number `index` of a block: 3 bits from bit `3 index` on, lowest bits first.
fn code(codes: &[u8], index: usize) -> usize {
    let (byte, shift) = (3 * index / 8, 3 * index % 8);
    let next = codes.get(byte + 1).copied().unwrap_or(0);
    let pair = u16::from_le_bytes([codes[byte], next]);
    usize::from(pair >> shift) & 7
}

/// Writes a block's codes and returns its largest magnitude.
fn encode_block(weight: &[f32], codes: &mut [u8]) -> f32 {
    let absmax = weight.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let factor = if absmax > 0.0 { absmax.recip() } else { 0.0 };
    codes.fill(0);
    for (index, x) in weight.iter().enumerate() {
        let bits = nearest(x * factor) << (3 * index % 8);
        let byte = 3 * index / 8;
        codes[byte] |= bits as u8;
        if bits > 0xff {
            codes[byte + 1] |= (bits >> 8) as u8;
        }
    }
    absmax
}

/// The code of the value nearest to `x`.
fn nearest(x: f32) -> u16 {
    let between = TABLE.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0);
    between.filter(|middle| x > *middle).count() as u16
}

const DECODE_ONLY: Component = Component {
    name: "decode-only",
    role: Role::QUANTIZER,
    doc: "3 bits a weight, packed without gaps, and a scale for each 64; decoded by the plugin",
    options: &[],
    capabilities: &[],
    create: |_, services| Ok(Instance::Quantizer(Box::new(DecodeOnly { services }))),
};

espalier_interface::declare_plugin! { name: "decode-only", components: &[DECODE_ONLY] }
