//! Packed weights of several formats, or of a random one: random segments, the values that the
//! format's reference decoder gives; a decoder function and device code for a format that describes
//! none.

mod random;

use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, Codes, Decoding, DeviceCode, Format, SegmentSpec, TableScale,
};
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
        || kit(shape),
        |dice| match dice.below(6) {
            0 => vec![called(draw, shape)],
            _ => vec![described(draw, random::format(draw, dice, shape))],
        },
    )
}

fn kit(shape: [u64; 2]) -> Vec<Packed> {
    let draw = &Draw::KIT;
    let formats = [
        ("4 bits, codebook, nested scales", nested(shape)),
        ("2 bits, affine, scales by row", by_row(shape)),
        (
            "3 bits, affine, strided blocks, affine zeros",
            strided(shape),
        ),
        ("8 bits, codebook, bf16 scales", eight_bits(shape)),
        (
            "4 bits, codebook, scales with a table over one number",
            coded_scales(shape),
        ),
        (
            "4 bits, affine, zeros of 4 bits with a table",
            coded_zeros(shape),
        ),
    ];
    let formats = formats.map(|(name, format)| described(draw, (name.to_owned(), format)));
    let mut all = Vec::from(formats);
    all.push(called(draw, shape));
    all
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
    filled.collect()
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

/// As NF4 with double quantization: 4 bits, blocks of 64 elements across rows, 8-bit scales.
fn nested(shape: [u64; 2]) -> Format {
    let blocks = BlockMap::Flat { size: 64 };
    let count = blocks.count(shape);
    let codes = Codes {
        segment: 0,
        bits: 4,
        order: BitOrder::HighFirst,
    };
    let words = codes.words(shape[0] * shape[1]);
    let segments = vec![
        SegmentSpec::new("codes", DType::U8, words),
        SegmentSpec::new("absmax", DType::U8, count),
        SegmentSpec::new("nested_absmax", DType::F32, count.div_ceil(256)),
        SegmentSpec::new("offset", DType::F32, 1),
    ];
    let scale = BlockValues::Nested {
        codes: 1,
        table: table(&Draw::KIT, 256),
        scales: 2,
        size: 256,
        offset: 3,
    };
    let table = table(&Draw::KIT, 16);
    let decoding = Decoding::Codebook {
        codes,
        table,
        blocks,
        scale,
    };
    format(shape, segments, decoding)
}

/// 2 bits, the first code in the lowest bits, a scale and a zero for each row.
fn by_row(shape: [u64; 2]) -> Format {
    let codes = Codes {
        segment: 0,
        bits: 2,
        order: BitOrder::LowFirst,
    };
    let words = codes.words(shape[0] * shape[1]);
    let segments = vec![
        SegmentSpec::new("codes", DType::U8, words),
        SegmentSpec::new("scale", DType::F16, shape[0]),
        SegmentSpec::new("zero", DType::F32, shape[0]),
    ];
    let decoding = Decoding::Affine {
        codes,
        blocks: BlockMap::Rows,
        scale: BlockValues::Stored { segment: 1 },
        zero: BlockValues::Stored { segment: 2 },
    };
    format(shape, segments, decoding)
}

/// As HQQ on axis 0: 3 bits in words of 32, strided blocks, zeros quantized again in one group.
fn strided(shape: [u64; 2]) -> Format {
    let elements = shape[0] * shape[1];
    let count = elements.div_ceil(64);
    let words = elements.div_ceil(10);
    let codes = Codes {
        segment: 0,
        bits: 3,
        order: BitOrder::Split { words },
    };
    let segments = vec![
        SegmentSpec::new("codes", DType::I32, words),
        SegmentSpec::new("scale", DType::F32, count),
        SegmentSpec::new("zero", DType::U8, count),
        SegmentSpec::new("zero_scale", DType::F32, 1),
        SegmentSpec::new("zero_zero", DType::F32, 1),
    ];
    let zero = BlockValues::Affine {
        codes: 2,
        groups: BlockMap::Rows,
        scales: 3,
        zeros: 4,
    };
    let decoding = Decoding::Affine {
        codes,
        blocks: BlockMap::Strided { count },
        scale: BlockValues::Stored { segment: 1 },
        zero,
    };
    format(shape, segments, decoding)
}

/// 8 bits, a scale for each column.
fn eight_bits(shape: [u64; 2]) -> Format {
    let codes = Codes {
        segment: 0,
        bits: 8,
        order: BitOrder::HighFirst,
    };
    let segments = vec![
        SegmentSpec::new("codes", DType::U8, shape[0] * shape[1]),
        SegmentSpec::new("scale", DType::BF16, shape[1]),
    ];
    let decoding = Decoding::Codebook {
        codes,
        table: table(&Draw::KIT, 256),
        blocks: BlockMap::Columns,
        scale: BlockValues::Stored { segment: 1 },
    };
    format(shape, segments, decoding)
}

/// As NVFP4: 4 bits, blocks of 16, a scale of 8 bits by a table over one number of the weight.
fn coded_scales(shape: [u64; 2]) -> Format {
    let blocks = BlockMap::Flat { size: 16 };
    let codes = |segment, bits| Codes {
        segment,
        bits,
        order: BitOrder::LowFirst,
    };
    let words = codes(0, 4).words(shape[0] * shape[1]);
    let segments = vec![
        SegmentSpec::new("codes", DType::U8, words),
        SegmentSpec::new("scale", DType::U8, blocks.count(shape)),
        SegmentSpec::new("global_scale", DType::F32, 1),
    ];
    let scale = BlockValues::Table {
        codes: codes(1, 8),
        table: table(&Draw::KIT, 256),
        not_numbers: Vec::new(),
        scale: Some(TableScale::Over { segment: 2 }),
    };
    let decoding = Decoding::Codebook {
        codes: codes(0, 4),
        table: table(&Draw::KIT, 16),
        blocks,
        scale,
    };
    format(shape, segments, decoding)
}

/// 4 bits, a scale of f32 and a zero point of 4 bits for each row.
fn coded_zeros(shape: [u64; 2]) -> Format {
    let blocks = BlockMap::Rows;
    let count = blocks.count(shape);
    let codes = |segment| Codes {
        segment,
        bits: 4,
        order: BitOrder::LowFirst,
    };
    let segments = vec![
        SegmentSpec::new("codes", DType::U8, codes(0).words(shape[0] * shape[1])),
        SegmentSpec::new("scale", DType::F32, count),
        SegmentSpec::new("zero", DType::U8, codes(2).words(count)),
    ];
    let decoding = Decoding::Affine {
        codes: codes(0),
        blocks,
        scale: BlockValues::Stored { segment: 1 },
        zero: BlockValues::Table {
            codes: codes(2),
            table: table(&Draw::KIT, 16),
            not_numbers: Vec::new(),
            scale: None,
        },
    };
    format(shape, segments, decoding)
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
