//! The kernels compared with the reference decoder, in every kind of format.

mod decodings;

use std::ops::Range;

use espalier_interface::DType;
use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, CodeRows, Codes, RowOrder, SegmentSpec,
};
use half::{bf16, f16};

use super::super::{PackedWeight, TileDecoder};
use super::*;
use crate::matmul::Isa;
use crate::matmul::tests::numbers;
use decodings::{decodings, shared_vectors, vectors};

/// Every width and order of codes.
fn layouts(elements: u64) -> Vec<Codes> {
    let mut layouts = Vec::new();
    for bits in 1..=8 {
        let layout = |order| Codes {
            segment: 0,
            bits,
            order,
        };
        let per_word = layout(BitOrder::Split { words: 1 }).per_word();
        let orders = [
            BitOrder::HighFirst,
            BitOrder::LowFirst,
            BitOrder::Stream,
            BitOrder::Split {
                words: elements.div_ceil(per_word),
            },
            BitOrder::Split { words: elements },
        ];
        layouts.extend(orders.map(layout).into_iter().filter(Codes::is_packable));
    }
    layouts
}

/// The segments of a weight: codes, scales and zeros, and those of each kind of nested numbers.
fn segments(codes: &Codes, elements: u64, count: u64, dtype: DType) -> Vec<SegmentSpec> {
    let spec = SegmentSpec::new;
    vec![
        spec("codes", codes.dtype(), codes.words(elements) + 3),
        spec("scale", dtype, count),
        spec("zero", dtype, count),
        spec("nested_codes", DType::U8, count),
        spec("nested_scales", DType::F32, count.div_ceil(16)),
        spec("offset", DType::F32, 1),
        spec("group_scales", dtype, count.max(5)),
        spec("group_zeros", dtype, count.max(5)),
        spec("positions", DType::U8, 3 * elements.div_ceil(40)),
        spec("outliers", dtype, 3 * elements.div_ceil(40)),
        spec("codebook", dtype, 14 << codes.bits),
        spec("residuals", DType::F32, 7 << codes.bits),
        spec("interleaved", DType::U8, 11 * count + 3),
    ]
}

/// Numbers of f16 and of f32, one of each in 11 bytes from byte 3 on.
fn interleaved(len: u64) -> Vec<u8> {
    let mut bytes = vec![0xa5; len as usize];
    let (_, records) = bytes.split_at_mut(3);
    for (record, x) in records.chunks_mut(11).zip(numbers::<f32>(len as usize, 3)) {
        record[..2].copy_from_slice(&f16::from_f32(x).to_le_bytes());
        record[2..6].copy_from_slice(&(0.5 - x).to_le_bytes());
    }
    bytes
}

fn bytes(spec: &SegmentSpec) -> Vec<u8> {
    if spec.name == "interleaved" {
        return interleaved(spec.len);
    }
    let x = numbers::<f32>(spec.len as usize, spec.name.len() as u64);
    let x = x.into_iter();
    match spec.dtype {
        DType::F32 => x.flat_map(f32::to_le_bytes).collect(),
        DType::BF16 => x.flat_map(|x| bf16::from_f32(x).to_le_bytes()).collect(),
        DType::F16 => x.flat_map(|x| f16::from_f32(x).to_le_bytes()).collect(),
        DType::I16 => x
            .flat_map(|x| ((x * 1e6) as i32 as u16).to_le_bytes())
            .collect(),
        DType::I32 => x
            .flat_map(|x| ((x * 1e9) as i32 & 0x3fff_ffff).to_le_bytes())
            .collect(),
        _ => x.map(|x| (x * 1e6) as i32 as u8).collect(),
    }
}

/// Calls `body` with every kind of format, `[rows, cols]`, and segments of random bytes and finite
/// numbers.
fn each_format(shape: [u64; 2], mut body: impl FnMut(&Format, &[&[u8]])) {
    let maps = [
        BlockMap::Flat { size: 64 },
        BlockMap::Flat { size: 24 },
        BlockMap::Flat { size: 16 },
        BlockMap::Strided { count: 40 },
        BlockMap::Rows,
        BlockMap::Columns,
        BlockMap::Groups { size: 24 },
    ];
    let elements = shape[0] * shape[1];
    for codes in layouts(elements) {
        for blocks in maps {
            for dtype in [DType::F32, DType::BF16, DType::F16] {
                let segments = segments(&codes, elements, blocks.count(shape), dtype);
                let data: Vec<_> = segments.iter().map(bytes).collect();
                let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
                for decoding in decodings(&codes, blocks, shape[1]) {
                    let format = Format {
                        quantizer: "test".to_owned(),
                        shape,
                        segments: segments.clone(),
                        decoding,
                    };
                    body(&format, &data);
                }
            }
        }
    }
}

/// Requires the bits of the reference decoder in some windows, on every instruction set.
fn assert_same(format: &Format, segments: &[&[u8]]) {
    let decoder = FormatDecoder::new(format).expect("it is described");
    let last = format.shape[1];
    for (rows, cols) in [(0..3u64, 0..last), (1..2, 5..last - 33), (2..3, 17..17)] {
        let len = ((rows.end - rows.start) * (cols.end - cols.start)) as usize;
        let mut expected = vec![0.0; len];
        format
            .decode(segments, rows.clone(), cols.clone(), &mut expected)
            .expect("it is described");
        for &isa in Isa::available() {
            let weight = PackedWeight {
                isa,
                ..decoder.weight(segments)
            };
            let mut found = vec![1.0; len];
            let window = |r: &Range<u64>| r.start as usize..r.end as usize;
            weight.decode(window(&rows), window(&cols), &mut found);
            let same = found
                .iter()
                .zip(&expected)
                .all(|(x, y)| x.to_bits() == y.to_bits());
            assert!(same, "{:?} {isa:?}", format.decoding);
        }
    }
}

#[test]
fn equals_the_reference_decoder_bit_for_bit() {
    for shape in [[7, 333], [3, 520]] {
        each_format(shape, assert_same);
    }
}

/// A format of that shape, with random bytes and finite numbers.
fn described(shape: [u64; 2], codes: &Codes, decoding: Decoding) -> (Format, Vec<Vec<u8>>) {
    let segments = segments(codes, shape[0] * shape[1], shape[0] * shape[1], DType::F16);
    let data = segments.iter().map(bytes).collect();
    let format = Format {
        quantizer: "test".to_owned(),
        shape,
        segments,
        decoding,
    };
    (format, data)
}

#[test]
fn codes_in_rows_equal_the_reference_decoder_bit_for_bit() {
    let shape = [5, 296];
    for bits in 1..=8 {
        for (row, order, alignment) in [
            (296, RowOrder::LowFirst, 64),
            (37, RowOrder::HighFirst, 1),
            (50, RowOrder::Stream, 4),
        ] {
            let codes = Codes {
                segment: 0,
                bits,
                order: BitOrder::Rows(CodeRows::aligned(row, bits, order, alignment)),
            };
            if !codes.is_packable() {
                continue;
            }
            for blocks in [64, 24].map(|size| BlockMap::Flat { size }) {
                for decoding in decodings(&codes, blocks, shape[1]) {
                    let (format, data) = described(shape, &codes, decoding);
                    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
                    assert_same(&format, &data);
                }
            }
        }
    }
}

#[test]
fn wide_codes_of_vectors_equal_the_reference_decoder_bit_for_bit() {
    let shape = [3, 296];
    for bits in [9, 12, 15, 16] {
        let rows = |order| BitOrder::Rows(CodeRows::aligned(5, bits, order, 6));
        for order in [
            BitOrder::LowFirst,
            BitOrder::HighFirst,
            BitOrder::Stream,
            rows(RowOrder::LowFirst),
            rows(RowOrder::Stream),
        ] {
            let codes = Codes {
                segment: 0,
                bits,
                order,
            };
            let blocks = BlockMap::Flat { size: 64 };
            let mut decodings = vec![vectors(&codes, blocks, shape[1])];
            // Of 9 bits 7168 values, as many as a description may have.
            if bits == 9 {
                decodings.push(shared_vectors(&codes, blocks));
            }
            for decoding in decodings {
                let (format, data) = described(shape, &codes, decoding);
                let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
                assert_same(&format, &data);
            }
        }
    }
}

#[test]
fn products_with_several_hadamard_matrices_equal_the_reference_decoder() {
    let shape = [3, 1536];
    let codes = Codes {
        segment: 0,
        bits: 4,
        order: BitOrder::LowFirst,
    };
    let values = || BlockValues::Stored { segment: 1 };
    let times = |blocks| Step::Times {
        blocks,
        values: values(),
    };
    let groups = BlockMap::Groups { size: 24 };
    let each = |size| Step::Hadamard { size };
    for steps in [
        vec![each(256), each(2)],
        vec![
            each(512),
            times(groups),
            each(128),
            each(512),
            times(groups),
        ],
        vec![times(groups), each(4), times(BlockMap::Columns), each(128)],
        vec![each(8), times(groups), each(64), each(8), times(groups)],
    ] {
        let source = ValueSource::Count {
            codes: codes.clone(),
        };
        let (format, data) = described(shape, &codes, Decoding::Steps { source, steps });
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        assert_same(&format, &data);
    }
}

#[test]
fn formats_that_only_the_quantizer_decodes_are_refused() {
    let format = Format {
        quantizer: "test".to_owned(),
        shape: [1, 4],
        segments: vec![SegmentSpec::new("codes", DType::U8, 4)],
        decoding: Decoding::Callback,
    };
    let message = FormatDecoder::new(&format)
        .expect_err("not described")
        .message;
    assert!(message.contains("`test`"), "{message}");
}
