//! Packed weights of several formats, or of a random one: random segments, the values that the
//! format's reference decoder gives; a decoder function and device code for a format that describes
//! none.

mod kit;
mod random;

use espalier_interface::format::{BlockValues, Decoding, DeviceCode, Format, SegmentSpec};
use espalier_interface::random::{Purpose, key, philox};
use espalier_interface::{DType, Decoder, ErrorCode};

use super::draw::Draw;
use super::numbers::encode;

/// A packed weight.
#[derive(Clone, Debug)]
pub struct Packed {
    /// Name for messages.
    pub name: String,
    /// Its layout.
    pub format: Format,
    /// The bytes of each segment.
    pub segments: Vec<Vec<u8>>,
    /// For a format that describes no decoding.
    pub decoder: Option<Decoder>,
    /// For a format that describes no decoding, where the quantizer has such code.
    pub device_code: Option<DeviceCode>,
    /// What it decodes to, `[N, M]`.
    pub values: Vec<f64>,
}

/// Weights `[N, M]` in formats that differ in bits, order, blocks and the values stored for a
/// block; or one weight of a seed.
pub fn packed(draw: &Draw, shape: [usize; 2]) -> Vec<Packed> {
    let shape = shape.map(|n| n as u64);
    draw.or_else(
        || kit::all(shape),
        |dice| match dice.below(6) {
            0 => vec![called(draw, shape)],
            _ => vec![described(draw, random::format(draw, dice, shape))],
        },
    )
}

/// A weight in a format that describes its decoding.
fn described(draw: &Draw, (name, format): (String, Format)) -> Packed {
    let segments = fill(draw, &format);
    let borrowed: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
    let [rows, columns] = format.shape;
    let mut values = vec![0.0f32; (rows * columns) as usize];
    let decoded = format.decode(&borrowed, 0..rows, 0..columns, &mut values);
    decoded.expect("a format that describes its decoding");
    Packed {
        name,
        format,
        segments,
        decoder: None,
        device_code: None,
        values: values.into_iter().map(f64::from).collect(),
    }
}

/// Random codes and block values.
fn fill(draw: &Draw, format: &Format) -> Vec<Vec<u8>> {
    let segments = format.segments.iter().enumerate();
    let filled = segments.map(|(index, segment)| {
        let n = segment.len as usize;
        if segment.dtype.is_float() {
            let numbers = draw.normal(n, segment.dtype, 20 + index as u64);
            return encode(segment.dtype, &numbers);
        }
        let key = key(draw.seed(30 + index as u64), Purpose::SYNTHETIC, 0);
        let words =
            (0..segment.bytes().div_ceil(16) as u32).flat_map(|at| philox(key, [at, 0, 0, 0]));
        let mut bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        bytes.truncate(segment.bytes() as usize);
        bytes
    });
    let mut filled: Vec<Vec<u8>> = filled.collect();
    for (_, blocks, values) in format.block_values() {
        for (index, values) in values.parts().into_iter().enumerate() {
            put_interleaved(draw, blocks.count(format.shape), values, index, &mut filled);
        }
    }
    filled
}

/// Writes numbers between the bytes of a segment, if those of `count` blocks lie there.
fn put_interleaved(
    draw: &Draw,
    count: u64,
    values: &BlockValues,
    index: usize,
    segments: &mut [Vec<u8>],
) {
    let BlockValues::Interleaved {
        segment,
        dtype,
        start,
        bytes,
    } = *values
    else {
        return;
    };
    let width = dtype.bytes() as usize;
    let places = (start as usize..).step_by(bytes as usize);
    let numbers = draw.normal(count as usize, dtype, 60 + (segment + index) as u64);
    for (at, number) in places.zip(encode(dtype, &numbers).chunks(width)) {
        // A product has fewer factors than blocks.
        if let Some(place) = segments[segment].get_mut(at..at + width) {
            place.copy_from_slice(number);
        }
    }
}

fn table(draw: &Draw, entries: usize) -> Vec<f32> {
    let numbers = draw.normal(entries, DType::F32, 40);
    numbers.into_iter().map(|x| x as f32).collect()
}

fn format(shape: [u64; 2], segments: Vec<SegmentSpec>, decoding: Decoding) -> Format {
    let format = Format {
        quantizer: "kit".to_owned(),
        shape,
        segments,
        decoding,
    };
    if format.decoding != Decoding::Callback {
        format.validate().expect("a sound format");
    }
    format
}

/// Elements that a decoder function gives: `code / 16 - 8`.
fn called(draw: &Draw, shape: [u64; 2]) -> Packed {
    // The function is given no shape, so the segment after the codes holds the columns.
    let segments = vec![
        SegmentSpec::new("codes", DType::U8, shape[0] * shape[1]),
        SegmentSpec::new("columns", DType::I32, 1),
    ];
    let format = format(shape, segments, Decoding::Callback);
    let mut segments = fill(draw, &format);
    segments[1] = encode(DType::I32, &[shape[1] as f64]);
    let values = segments[0].iter().map(|&code| value(code).into()).collect();
    Packed {
        name: "a decoder function".to_owned(),
        format,
        segments,
        decoder: Some(Decoder {
            context: std::ptr::null(),
            decode: decode_codes,
        }),
        device_code: Some(DeviceCode::cuda(CODE)),
        values,
    }
}

/// The device code of [`called`].
const CODE: &str = "\
DEVICE float value(uint8_t code) { return (float)code / 16.0f - 8.0f; }
DEVICE void decode_elements(const Segments& segments, const Shape&, uint64_t first, int count, float* values) {
  for (int k = 0; k < count; k++) values[k] = value(segments.start[0][first + k]);
}
";

fn value(code: u8) -> f32 {
    f32::from(code) / 16.0 - 8.0
}

/// The decoder of [`called`].
#[allow(unsafe_code)] // The boundary hands over pointers.
extern "C" fn decode_codes(
    _: *const (),
    segments: *const *const u8,
    lens: *const usize,
    count: usize,
    range: *const u64,
    out: *mut f32,
) -> u32 {
    if count != 2 {
        return ErrorCode::INVALID.0;
    }
    // SAFETY: the interface says that `segments` and `lens` have `count` entries, and `range` four.
    let (segments, lens, range) = unsafe {
        (
            std::slice::from_raw_parts(segments, count),
            std::slice::from_raw_parts(lens, count),
            std::slice::from_raw_parts(range, 4),
        )
    };
    // SAFETY: each segment has its length in bytes.
    let (codes, columns) = unsafe {
        (
            std::slice::from_raw_parts(segments[0], lens[0]),
            std::slice::from_raw_parts(segments[1], lens[1]),
        )
    };
    let Ok(columns) = columns.try_into().map(u32::from_le_bytes) else {
        return ErrorCode::INVALID.0;
    };
    let mut at = 0;
    for row in range[0]..range[1] {
        for column in range[2]..range[3] {
            let Some(&code) = codes.get((row * u64::from(columns) + column) as usize) else {
                return ErrorCode::INVALID.0;
            };
            // SAFETY: `out` has an element for each of the range.
            unsafe { out.add(at).write(value(code)) };
            at += 1;
        }
    }
    0
}
