//! Products of few rows have the bits of the same rows of a product of many.

use espalier_interface::Serial;
use espalier_interface::format::{
    BitOrder, BlockMap, BlockValues, Codes, Decoding, Format, SegmentSpec,
};
use half::f16;

use super::*;
use crate::added::Added;
use crate::decode::{FormatDecoder, Packed};
use crate::matmul::tests::numbers;
use crate::matmul::threads::Threads;
use crate::matmul::{Combine, Dense, Operand, Output, Rows, matmul, sum_workspace_bytes};
use crate::split::Parts;

/// Rows of the product of many.
const MANY: usize = MOST_ROWS + 3;

/// All instruction sets of this CPU, and the models of two.
fn sets() -> Vec<Isa> {
    let mut sets = Isa::available().to_vec();
    sets.extend([Isa::Bf16Model, Isa::AmxModel]);
    sets
}

/// The first `rows` of `x` times a weight, with a bias, written or added to `before`.
fn product<E: Element>(
    (isa, services): (Isa, &dyn Services),
    (x, rows): (&[E], usize),
    weight: &dyn Rows<E::Acc>,
    (before, combine): (&[E], Combine<'_, E>),
) -> Vec<E>
where
    E::Acc: Scalar,
{
    let (n, m) = weight.size();
    let x = Dense::new(&x[..rows * m], rows, m);
    // A few elements between rows, which stay.
    let stride = n + 3;
    let mut out = before[..(rows - 1) * stride + n].to_vec();
    let bias = numbers::<bf16>(n, 3);
    let bias = Dense::new(&bias, 1, n);
    let mut workspace = vec![0xFF; sum_workspace_bytes::<E>(isa, services.threads(), [rows, n, m])];
    let (left, right) = (Operand::over_cols(&x), Operand::over_cols(weight));
    let output = Output {
        values: &mut out,
        stride,
        combine,
        bias: Some(&bias),
    };
    matmul(isa, services, left, right, output, &mut workspace);
    out
}

/// Compares products of a weight on some threads.
fn compare<E: Element>(weight: &dyn Rows<E::Acc>, what: &str, sets: &[Isa])
where
    E::Acc: Scalar,
{
    let (n, m) = weight.size();
    let x = numbers::<E>(MANY * m, 1);
    let before = numbers::<E>(MANY * (n + 3), 2);
    for &isa in sets {
        let onto = |alpha| {
            let added = Added::Output;
            Combine::Sum(Sum {
                alpha,
                added,
                ..Sum::PRODUCT
            })
        };
        for combine in [Combine::PRODUCT, onto(1.0), onto(-0.3)] {
            let to = (&before[..], combine);
            let many = product((isa, &Serial), (&x, MANY), weight, to);
            for (rows, threads) in [(1, 1), (1, 2), (2, 2), (7, 1), (14, 1), (MOST_ROWS, 2)] {
                let few = product((isa, &Threads(threads)), (&x, rows), weight, to);
                assert!(
                    few == many[..few.len()],
                    "{rows} rows of {m}, {n} columns of {what}, {isa:?}, {combine:?}"
                );
            }
        }
    }
}

/// Compares products of dense weights in `W`.
fn compare_dense<E: Element, W: Element>()
where
    E::Acc: Scalar,
{
    for [n, m] in [
        [1, 1],
        [15, 7],
        [33, 31],
        [70, 257],
        [16, 512],
        [49, 530],
        [5, 1100],
    ] {
        let values = numbers::<W>(n * m, 4);
        compare::<E>(&Dense::new(&values, n, m), &W::DTYPE.name(), &sets());
    }
    let [n, m] = [530, 520];
    let values = numbers::<W>(n * m, 4);
    compare::<E>(
        &Dense::new(&values, n, m),
        &W::DTYPE.name(),
        &[Isa::detect(), Isa::AmxModel],
    );
}

#[test]
fn dense_weights_give_the_bits_of_many_rows() {
    compare_dense::<f32, f32>();
    compare_dense::<f32, bf16>();
    compare_dense::<bf16, bf16>();
    compare_dense::<bf16, f32>();
    compare_dense::<bf16, f16>();
    compare_dense::<f16, f16>();
    compare_dense::<f64, f64>();
    compare_dense::<f64, bf16>();
}

/// A format of 16 values a block, `[rows, cols]`, and its bytes.
pub(in crate::matmul) fn codebook(
    (shape, bits): ([usize; 2], u32),
    order: BitOrder,
    blocks: BlockMap,
    is_nested: bool,
) -> (Format, Vec<Vec<u8>>) {
    let [rows, cols] = shape.map(|len| len as u64);
    let codes = Codes {
        segment: 0,
        bits,
        order,
    };
    let count = blocks.count([rows, cols]);
    let segments = vec![
        SegmentSpec::new("codes", DType::U8, codes.words(rows * cols)),
        SegmentSpec::new("scales", DType::F32, count),
        SegmentSpec::new("nested", DType::U8, count),
        SegmentSpec::new("nested_scales", DType::F32, count.div_ceil(16)),
        SegmentSpec::new("offset", DType::F32, 1),
    ];
    let bytes = |spec: &SegmentSpec| -> Vec<u8> {
        let x = numbers::<f32>(spec.len as usize, spec.name.len() as u64).into_iter();
        match spec.dtype {
            DType::F32 => x.flat_map(f32::to_le_bytes).collect(),
            _ => x.map(|x| (x * 1e6) as i32 as u8).collect(),
        }
    };
    let data = segments.iter().map(bytes).collect();
    let scale = if is_nested {
        BlockValues::Nested {
            codes: 2,
            table: numbers(256, 9),
            scales: 3,
            size: 16,
            offset: 4,
        }
    } else {
        BlockValues::Stored { segment: 1 }
    };
    let format = Format {
        quantizer: "test".to_owned(),
        shape: [rows, cols],
        segments,
        decoding: Decoding::Codebook {
            codes,
            table: numbers(1 << bits, 8),
            blocks,
            scale,
        },
    };
    (format, data)
}

#[test]
fn packed_weights_give_the_bits_of_many_rows() {
    let flat = |size| BlockMap::Flat { size };
    let (high, low) = (BitOrder::HighFirst, BitOrder::LowFirst);
    for (shape, bits, order, blocks, is_nested) in [
        ([33, 64], 4, high, flat(64), true),
        ([47, 768], 4, low, flat(64), false),
        ([18, 1104], 4, high, flat(48), true),
        ([65, 272], 4, high, flat(16), false),
        ([17, 1040], 4, low, BlockMap::Rows, false),
        ([5, 4160], 4, high, flat(16), true),
        ([360, 768], 4, high, flat(64), true),
        // No kernel reads these as codes.
        ([33, 100], 4, high, flat(64), true),
        ([20, 530], 4, high, BlockMap::Columns, false),
        ([20, 256], 2, high, flat(64), false),
    ] {
        let (format, data) = codebook((shape, bits), order, blocks, is_nested);
        let segments: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let decoder = FormatDecoder::new(&format).expect("it is described");
        let weight = decoder.weight(&segments);
        let what = format!("{order:?} {blocks:?}");
        compare::<f32>(&Packed(&weight), &what, &sets());
        compare::<bf16>(&Packed(&weight), &what, &sets());
        compare::<f64>(&Packed(&weight), &what, &[Isa::detect()]);
    }
}

/// A format with a scale and a zero point a block, `[rows, cols]`, and its bytes.
pub(in crate::matmul) fn affine(
    [rows, cols]: [usize; 2],
    bits: u32,
    order: BitOrder,
    blocks: BlockMap,
) -> (Format, Vec<Vec<u8>>) {
    let (rows, cols) = (rows as u64, cols as u64);
    let codes = Codes {
        segment: 0,
        bits,
        order,
    };
    let count = blocks.count([rows, cols]);
    let (words, dtype) = (codes.words(rows * cols), codes.dtype());
    let segments = vec![
        SegmentSpec::new("codes", dtype, words),
        SegmentSpec::new("scales", DType::BF16, count),
        SegmentSpec::new("zeros", DType::F32, count),
    ];
    let some: Vec<u8> = (0..rows * cols)
        .map(|i| (i * 83 + i / 7) as u8 & codes.mask())
        .collect();
    let mut bytes = vec![0; (words * dtype.bytes()) as usize];
    codes.pack(&some, &mut bytes);
    let scales = numbers::<bf16>(count as usize, 5).into_iter();
    let zeros = numbers::<f32>(count as usize, 6).into_iter();
    let data = vec![
        bytes,
        scales.flat_map(bf16::to_le_bytes).collect(),
        zeros.flat_map(|x| (7.0 + 9.0 * x).to_le_bytes()).collect(),
    ];
    let format = Format {
        quantizer: "test".to_owned(),
        shape: [rows, cols],
        segments,
        decoding: Decoding::Affine {
            codes,
            blocks,
            scale: BlockValues::Stored { segment: 1 },
            zero: BlockValues::Stored { segment: 2 },
        },
    };
    (format, data)
}

#[test]
fn affine_weights_give_the_bits_of_many_rows() {
    let flat = |size| BlockMap::Flat { size };
    let split = |words: usize| BitOrder::Split {
        words: words as u64,
    };
    for (shape, bits, order, blocks, is_served) in [
        // Rows of a vector in the high bits, and others in the low bits.
        ([34, 64], 4, split(17 * 64), flat(64), true),
        ([47, 768], 4, split(24 * 768), flat(128), true),
        ([80, 1056], 4, split(40 * 1056), flat(32), true),
        ([21, 544], 2, split(6 * 544), flat(32), true),
        ([17, 1088], 1, split(3 * 1088), BlockMap::Rows, true),
        ([33, 640], 4, BitOrder::HighFirst, flat(64), true),
        ([7, 96], 4, BitOrder::LowFirst, BlockMap::Rows, true),
        // No kernel reads these as codes.
        ([33, 64], 4, split(33 * 32), flat(64), false),
        ([20, 320], 3, split(2 * 320), flat(64), false),
        ([20, 320], 8, split(20 * 320), flat(64), false),
        ([20, 48], 4, split(10 * 48), flat(16), false),
        ([20, 530], 4, split(10 * 530), BlockMap::Columns, false),
        (
            [64, 96],
            4,
            split(32 * 96),
            BlockMap::Strided { count: 96 },
            false,
        ),
    ] {
        let (format, data) = affine(shape, bits, order, blocks);
        let segments: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let decoder = FormatDecoder::new(&format).expect("it is described");
        let weight = decoder.weight(&segments);
        let what = format!("{bits} bits, {order:?} {blocks:?}");
        let codes = Packed(&weight);
        #[cfg(target_arch = "x86_64")]
        if crate::simd::has_avx512_bf16_and_vbmi() {
            let codes = Rows::<f32>::nibbles(&codes);
            let found = codes.is_some_and(|codes| codes.are_served(Isa::Avx512Bf16));
            assert_eq!(found, is_served, "{what}");
        }
        compare::<bf16>(&codes, &what, &sets());
        compare::<f32>(&codes, &what, &[Isa::detect().vectors()]);
    }
}

#[test]
fn only_few_rows_of_weights_read_along_rows_are_computed_here() {
    let x = numbers::<f32>(20 * 40, 1);
    let of = |rows: usize, depth: usize, over_rows: bool| {
        let left = Dense::new(&x[..rows * depth], rows, depth);
        let (along, across) = (Dense::new(&x, 20, 40), Dense::new(&x, 40, 20));
        let mut value = [0.0f32];
        let out = Parts::new(&mut value);
        let right = if over_rows {
            Operand::over_rows(&across)
        } else {
            Operand::over_cols(&along)
        };
        let product = Product {
            isa: Isa::detect().vectors(),
            left: Operand::over_cols(&left),
            right,
            out,
            stride: 20,
            sums: Sums::InOutput(Update::Overwrite),
            bias: None,
            low_rank: None,
        };
        FewRows(&product).is_of_few_rows()
    };
    let most = most_rows(Isa::detect().vectors(), f32::DTYPE);
    assert!(of(1, 40, false) && of(most, 40, false));
    assert!(!of(most + 1, 40, false) && !of(1, 40, true));
}
