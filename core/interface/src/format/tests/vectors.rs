//! Vectors whose codebooks are in the description, decoded by the reference and refused where their
//! parts do not fit.

use super::*;

/// A weight `[2, 6]` of vectors of 3 that cross no row, from two codebooks of the description: the
/// numbers 0 to 11, and hundreds of the one code of a bit; times a factor of each row.
fn shared() -> Format {
    let codes = |segment, bits| Codes {
        segment,
        bits,
        order: BitOrder::HighFirst,
    };
    let source = ValueSource::SharedVectors {
        codes: vec![codes(0, 2), codes(1, 1)],
        codebooks: vec![
            (0..12).map(|i| i as f32).collect(),
            vec![0.0, 0.0, 0.0, 100.0, 200.0, 300.0],
        ],
        len: 3,
    };
    let factor = Step::Times {
        blocks: BlockMap::Rows,
        values: BlockValues::Stored { segment: 2 },
    };
    Format {
        quantizer: "test".into(),
        shape: [2, 6],
        segments: vec![
            SegmentSpec::new("codes", DType::U8, 1),
            SegmentSpec::new("residual_codes", DType::U8, 1),
            SegmentSpec::new("factor", DType::F32, 2),
        ],
        decoding: Decoding::Steps {
            source,
            steps: vec![factor],
        },
    }
}

/// The parts of a source that a test changes.
type Parts<'a> = (&'a mut Vec<Codes>, &'a mut Vec<Vec<f32>>, &'a mut u64);

fn parts(format: &mut Format) -> Parts<'_> {
    match &mut format.decoding {
        Decoding::Steps {
            source:
                ValueSource::SharedVectors {
                    codes,
                    codebooks,
                    len,
                },
            ..
        } => (codes, codebooks, len),
        _ => panic!("vectors of the description"),
    }
}

#[test]
fn shared_vectors_are_the_sums_of_the_descriptions_codebooks() {
    let format = shared();
    format.validate().expect("it fits");
    let factors = f32s(&[1.0, -2.0]);
    // Codes 3, 0 and 1, 2 of the first codebook; 0, 1 and 1, 0 of the second.
    let segments: [&[u8]; 3] = [&[0b11_00_01_10], &[0b0110_0000], &factors];
    let mut out = [0.0; 12];
    let decoded = format.decode(&segments, 0..2, 0..6, &mut out);
    decoded.expect("described");
    let expected = [
        9.0, 10.0, 11.0, 100.0, 201.0, 302.0, -206.0, -408.0, -610.0, -12.0, -14.0, -16.0,
    ];
    assert_eq!(out, expected);
    let mut part = [0.0; 2];
    let decoded = format.decode(&segments, 1..2, 2..4, &mut part);
    decoded.expect("described");
    assert_eq!(part, [-610.0, -12.0]);
}

/// The same numbers in segments of each weight decode to the same bits, also where a sum rounds.
#[test]
fn shared_vectors_have_the_values_of_stored_ones() {
    let mut format = shared();
    let books = [
        (0..12).map(|i| 1.0 / (i as f32 - 5.3)).collect::<Vec<_>>(),
        (0..6).map(|i| 1e-4 * (i as f32 + 0.7)).collect(),
    ];
    *parts(&mut format).1 = books.to_vec();
    let mut stored = format.clone();
    let (codes, _, len) = parts(&mut format);
    let source = ValueSource::Vectors {
        codes: codes.clone(),
        codebooks: vec![3, 4],
        len: *len,
    };
    let (_, steps) = stored.stages().expect("described");
    stored.decoding = Decoding::Steps { source, steps };
    for (name, book) in [("codebook", &books[0]), ("residuals", &books[1])] {
        let segment = SegmentSpec::new(name, DType::F32, book.len() as u64);
        stored.segments.push(segment);
    }
    let [factors, first, second] = [&[1.1, -0.3][..], &books[0], &books[1]].map(f32s);
    let segments: [&[u8]; 5] = [&[0b10_11_01_00], &[0b1011_0000], &factors, &first, &second];
    let decoded = |format: &Format, segments: &[&[u8]]| {
        format.validate().expect("it fits");
        let mut out = [0.0f32; 12];
        let decoded = format.decode(segments, 0..2, 0..6, &mut out);
        decoded.expect("described");
        out.map(f32::to_bits)
    };
    let expected = decoded(&format, &segments[..3]);
    assert_eq!(decoded(&stored, &segments), expected);
    // One codebook after the other in a segment, as AQLM has them.
    if let Decoding::Steps {
        source: ValueSource::Vectors { codebooks, .. },
        ..
    } = &mut stored.decoding
    {
        *codebooks = vec![3, 3];
    }
    let message = stored.validate().expect_err("too short").message;
    assert!(
        message.contains("holds 12 f32, expected at least 18"),
        "{message}"
    );
    stored.segments.pop();
    stored.segments[3].len = 18;
    let both = [first.as_slice(), &second].concat();
    let segments = [segments[0], segments[1], segments[2], &both];
    assert_eq!(decoded(&stored, &segments), expected);
}

#[test]
fn a_description_with_codebooks_is_the_same_after_it_was_written() {
    let mut format = shared();
    parts(&mut format).1[0][7] = 0.1 + f32::EPSILON;
    let text = serde_json::to_string(&format).expect("numbers");
    assert!(text.contains("\"shared_vectors\""), "{text}");
    let read: Format = serde_json::from_str(&text).expect("as it was written");
    assert_eq!(read, format);
}

#[test]
fn shared_vectors_that_do_not_fit_are_refused_by_name() {
    let refused = |change: fn(Parts<'_>), expected: &str| {
        let mut format = shared();
        change(parts(&mut format));
        let message = format.validate().expect_err("it does not fit").message;
        assert!(message.contains(expected), "{message}");
    };
    refused(
        |(.., len)| *len = 1,
        "vectors of 1 elements, expected 2 to 64",
    );
    refused(
        |(.., len)| *len = 65,
        "vectors of 65 elements, expected 2 to 64",
    );
    refused(|(_, books, _)| books.truncate(1), "2 codes and 1 codebooks");
    refused(
        |(codes, books, _)| (codes.clear(), books.clear()).0,
        "0 codes and 0 codebooks of vectors, expected as many of both and one at least",
    );
    refused(
        |(_, books, _)| books[1].push(0.0),
        "codebook 1 of the description has 7 values, expected 6: 3 for each of the 2 codes of 1 \
         bits",
    );
    refused(
        |(_, books, _)| books[0][4] = f32::NAN,
        "codebook 0 of the description: value 4 of its table is NaN",
    );
    refused(
        |(codes, ..)| codes[1].segment = 7,
        "codes: segment 7 does not exist",
    );
    refused(|(codes, ..)| codes[0].bits = 3, "codes of 3 bits");
}

/// One codebook that may just be, and one that is too large; and too many of them.
#[test]
fn codebooks_of_a_description_have_bounds() {
    let of = |bits: u32, count: usize| {
        let codes = Codes {
            segment: 0,
            bits,
            order: BitOrder::Stream,
        };
        let mut format = shared();
        *parts(&mut format).0 = vec![codes; count];
        *parts(&mut format).1 = vec![vec![0.5; 2 << bits]; count];
        *parts(&mut format).2 = 2;
        format.segments[0].len = 12;
        format.validate()
    };
    of(12, 1).expect("8192 values");
    of(8, 16).expect("8192 values");
    let message = of(13, 1).expect_err("too many values").message;
    assert!(
        message.contains("16384 values in the codebooks of the description, expected at most 8192"),
        "{message}"
    );
    let message = of(1, 17).expect_err("too many codebooks").message;
    assert!(
        message.contains("17 codebooks of vectors, expected at most 16"),
        "{message}"
    );
}
