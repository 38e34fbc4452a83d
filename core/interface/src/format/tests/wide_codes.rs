//! Codes of more than 8 bits and codes in rows of their own, with values that are written out.

use super::*;
use crate::saved_form::{SavedAxis, SavedContent, SavedForm, SavedOrder, SavedTensor};

fn f16s(x: &[f32]) -> Vec<u8> {
    let numbers = x.iter().map(|&x| half::f16::from_f32(x));
    numbers.flat_map(|x| x.to_le_bytes()).collect()
}

fn i16s(x: &[u16]) -> Vec<u8> {
    x.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// The codes of vector `[row][vector]` of [`aqlm`].
const CODES: [u16; 4] = [0, 40_000, 65_535, 1];

/// A weight `[2, 16]` as AQLM's 1x16 has it: a code of 16 bits for each 8 elements, a codebook of
/// 65536 vectors, a scale for each row.
fn aqlm(order: BitOrder) -> Format {
    let codes = Codes {
        segment: 0,
        bits: 16,
        order,
    };
    let segments = vec![
        SegmentSpec::new("codes", codes.dtype(), codes.words(4)),
        SegmentSpec::new("codebooks", DType::F16, 8 << 16),
        SegmentSpec::new("scales", DType::F16, 2),
    ];
    let source = ValueSource::Vectors {
        codes: vec![codes],
        codebooks: vec![1],
        len: 8,
    };
    let scale = Step::Times {
        blocks: BlockMap::Rows,
        values: BlockValues::Stored { segment: 2 },
    };
    Format {
        quantizer: "aqlm".into(),
        shape: [2, 16],
        segments,
        decoding: Decoding::Steps {
            source,
            steps: vec![scale],
        },
    }
}

/// A codebook whose other vectors are NaN.
fn codebook() -> Vec<u8> {
    let mut vectors = vec![f32::NAN; 8 << 16];
    for (code, first) in [(0, 1.0), (1, 0.25), (40_000, -3.0), (65_535, 100.0)] {
        for (lane, x) in vectors[8 * code..8 * code + 8].iter_mut().enumerate() {
            *x = first + lane as f32;
        }
    }
    f16s(&vectors)
}

/// What [`aqlm`] decodes to, written out.
const VALUES: [[f32; 16]; 2] = [
    [
        2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, // 2 (1 + lane)
        -6.0, -4.0, -2.0, 0.0, 2.0, 4.0, 6.0, 8.0, // 2 (-3 + lane)
    ],
    [
        50.0, 50.5, 51.0, 51.5, 52.0, 52.5, 53.0, 53.5, // (100 + lane) / 2
        0.125, 0.625, 1.125, 1.625, 2.125, 2.625, 3.125, 3.625, // (0.25 + lane) / 2
    ],
];

#[test]
fn vectors_of_a_codebook_of_sixteen_bits_have_the_values_that_are_written_out() {
    let (codebook, scales) = (codebook(), f16s(&[2.0, 0.5]));
    let rows = |order, alignment| BitOrder::Rows(CodeRows::aligned(2, 16, order, alignment));
    for order in [
        BitOrder::LowFirst,
        BitOrder::HighFirst,
        BitOrder::Stream,
        rows(RowOrder::LowFirst, 2),
        rows(RowOrder::LowFirst, 16),
        rows(RowOrder::Stream, 5),
    ] {
        let format = aqlm(order);
        format.validate().expect("it fits");
        assert!(format.bytes() > 1 << 20, "a codebook of 1 MB counts");
        let Decoding::Steps { source, .. } = &format.decoding else {
            panic!("a format of steps")
        };
        let mut packed = vec![0; format.segments[0].bytes() as usize];
        source.codes()[0].pack_wide(&CODES, &mut packed);
        if order == BitOrder::LowFirst {
            assert_eq!(packed, i16s(&CODES));
        }
        let mut out = [0.0; 32];
        let decoded = format.decode(&[&packed, &codebook, &scales], 0..2, 0..16, &mut out);
        decoded.expect("described");
        assert_eq!(out.as_slice(), VALUES.as_flattened(), "{order:?}");
    }
}

/// AQLM's tensor `codes` is int16, `[out_groups, in_groups, codebooks]`.
#[test]
fn the_saved_codes_of_a_codebook_are_those_of_the_segment() {
    let format = aqlm(BitOrder::LowFirst);
    let tensor = |name: &str, dtype, shape: &[u64], segment| SavedTensor {
        name: name.into(),
        dtype,
        shape: shape.to_vec(),
        content: SavedContent::Segment(segment),
        also_stored_as: Vec::new(),
    };
    let tensors = vec![
        tensor("codes", DType::I16, &[2, 2, 1], 0),
        tensor("codebooks", DType::F16, &[1, 1 << 16, 1, 8], 1),
        tensor("scales", DType::F16, &[2, 1, 1, 1], 2),
    ];
    let form = SavedForm { tensors };
    form.validate(&format).expect("each segment once");
}

/// The codes of two codebooks, side by side in one tensor: as they are, and in an order in which
/// those of a codebook follow each other.
#[test]
fn codes_of_two_codebooks_in_one_segment_are_read_side_by_side_and_one_after_the_other() {
    let (of_first, of_second) = ([7, 4095, 0, 300], [1, 2, 4000, 4094]);
    let tensor: Vec<u16> = (0..4).flat_map(|v| [of_first[v], of_second[v]]).collect();
    let tensor = i16s(&tensor);
    let order = SavedOrder {
        segment: 0,
        bits: 16,
        axes: [[2, 2], [2, 1], [2, 4]]
            .map(|[extent, stride]| SavedAxis { extent, stride })
            .into(),
        added: 0,
        taken_from_words: 0,
    };
    order.validate(16).expect("each element once");
    let mut parted = vec![0; 16];
    order.load(&tensor, &mut parted);
    let codes = |codes, bytes, start| Codes {
        segment: 0,
        bits: 12,
        order: BitOrder::Rows(CodeRows {
            codes,
            bytes,
            start,
            order: RowOrder::LowFirst,
        }),
    };
    for (first, second, bytes) in [
        (codes(1, 4, 0), codes(1, 4, 2), &tensor),
        (codes(4, 8, 0), codes(4, 8, 8), &parted),
    ] {
        assert!(first.words(4) <= 8 && second.words(4) == 8);
        for (layout, expected) in [(first, of_first), (second, of_second)] {
            let found = [0, 1, 2, 3].map(|v| layout.read_wide(bytes, v));
            assert_eq!(found, expected, "{layout:?}");
        }
    }
}

/// A weight `[2, 5]` of 3 bits as a stream, whose rows begin at multiples of 4 bytes.
fn padded() -> Format {
    let codes = Codes {
        segment: 0,
        bits: 3,
        order: BitOrder::Rows(CodeRows::aligned(5, 3, RowOrder::Stream, 4)),
    };
    let steps = vec![Step::Times {
        blocks: BlockMap::Rows,
        values: BlockValues::Stored { segment: 1 },
    }];
    Format {
        quantizer: "test".into(),
        shape: [2, 5],
        segments: vec![
            SegmentSpec::new("codes", DType::U8, codes.words(10)),
            SegmentSpec::new("scale", DType::F32, 2),
        ],
        decoding: Decoding::Steps {
            source: ValueSource::Count { codes },
            steps,
        },
    }
}

#[test]
fn rows_of_codes_begin_at_multiples_of_bytes() {
    let format = padded();
    format.validate().expect("it fits");
    // Four bytes of the first row, 15 bits of the second.
    assert_eq!(format.segments[0].len, 6);
    let Decoding::Steps { source, .. } = &format.decoding else {
        panic!("a format of steps")
    };
    let mut packed = [0xff; 6];
    source.codes()[0].pack(&[1, 2, 3, 4, 5, 6, 7, 1, 2, 3], &mut packed);
    let [low, high] = [0b1101_0001, 0b0101_1000];
    assert_eq!(packed, [low, high, 0, 0, 0b0111_1110, 0b0011_0100]);
    // What lies between rows is not read.
    packed[2..4].fill(0xff);
    let scales = f32s(&[1.0, 10.0]);
    let mut out = [0.0; 10];
    let decoded = format.decode(&[&packed, &scales], 0..2, 0..5, &mut out);
    decoded.expect("described");
    assert_eq!(out, [1.0, 2.0, 3.0, 4.0, 5.0, 60.0, 70.0, 10.0, 20.0, 30.0]);
}

#[test]
fn rows_without_bytes_between_them_are_none_among_the_stages() {
    let of_rows = |codes, bits, order, alignment| Codes {
        segment: 0,
        bits,
        order: BitOrder::Rows(CodeRows::aligned(codes, bits, order, alignment)),
    };
    for (mut codes, expected) in [
        (of_rows(6, 4, RowOrder::HighFirst, 1), BitOrder::HighFirst),
        (of_rows(8, 3, RowOrder::Stream, 3), BitOrder::Stream),
        (of_rows(4, 2, RowOrder::Stream, 1), BitOrder::LowFirst),
        (of_rows(3, 12, RowOrder::LowFirst, 2), BitOrder::LowFirst),
    ] {
        codes.simplify();
        assert_eq!(codes.order, expected);
    }
    let mut kept = of_rows(5, 4, RowOrder::Stream, 1);
    kept.simplify();
    let rows = CodeRows::aligned(5, 4, RowOrder::LowFirst, 1);
    assert_eq!((rows.bytes, kept.order), (3, BitOrder::Rows(rows)));
}

#[test]
fn wide_codes_and_rows_that_do_not_fit_are_refused_by_name() {
    fn refused(mut format: Format, change: fn(&mut Codes), expected: &str) {
        let Decoding::Steps { source, .. } = &mut format.decoding else {
            panic!("a format of steps")
        };
        match source {
            ValueSource::Vectors { codes, .. } | ValueSource::SharedVectors { codes, .. } => {
                change(&mut codes[0])
            }
            ValueSource::Table { codes, .. } | ValueSource::Count { codes } => change(codes),
        }
        let message = format.validate().expect_err("it does not fit").message;
        assert!(message.contains(expected), "{message}");
    }
    fn rows(codes: &mut Codes) -> &mut CodeRows {
        match &mut codes.order {
            BitOrder::Rows(rows) => rows,
            order => panic!("{order:?}"),
        }
    }
    let in_rows = || {
        aqlm(BitOrder::Rows(CodeRows::aligned(
            2,
            16,
            RowOrder::LowFirst,
            6,
        )))
    };
    let low = || aqlm(BitOrder::LowFirst);
    refused(low(), |codes| codes.bits = 17, "codes of 17 bits");
    refused(padded(), |codes| codes.bits = 0, "codes of 0 bits");
    let split = |codes: &mut Codes| codes.order = BitOrder::Split { words: 4 };
    refused(low(), split, "for vectors 9 to 16 in words of 16 bits");
    refused(
        low(),
        |codes| codes.order = BitOrder::Stream,
        "expected at least 8",
    );
    refused(
        in_rows(),
        |codes| rows(codes).bytes = 3,
        "2 codes of 16 bits in 3 bytes",
    );
    refused(
        in_rows(),
        |codes| rows(codes).bytes = 5,
        "every 5 bytes, expected multiples",
    );
    refused(in_rows(), |codes| rows(codes).start = 1, "from byte 1 on");
    refused(
        in_rows(),
        |codes| rows(codes).start = 2,
        "expected at least 6",
    );
    refused(in_rows(), |codes| rows(codes).codes = 0, "rows of 0 codes");
    refused(
        in_rows(),
        |codes| rows(codes).bytes = u64::MAX - 1,
        "expected at least",
    );
    refused(
        padded(),
        |codes| codes.bits = 12,
        "codes of 12 bits, expected at most 8",
    );
    refused(
        padded(),
        |codes| rows(codes).order = RowOrder::LowFirst,
        "codes of 3 bits",
    );
    refused(
        padded(),
        |codes| rows(codes).bytes = 1,
        "in 1 bytes each, expected at least",
    );
}

#[test]
fn an_order_of_rows_is_plain_data() {
    let codes = Codes {
        segment: 2,
        bits: 12,
        order: BitOrder::Rows(CodeRows::aligned(5, 12, RowOrder::Stream, 4)),
    };
    let text = serde_json::to_string(&codes).expect("plain data");
    let expected = r#"{"segment":2,"bits":12,"order":{"rows":{"codes":5,"bytes":8,"start":0,"order":"stream"}}}"#;
    assert_eq!(text, expected);
    assert_eq!(
        serde_json::from_str::<Codes>(&text).expect("a layout"),
        codes
    );
}
