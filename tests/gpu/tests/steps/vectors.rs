//! Vectors of codebooks in segments and in the description, with codes of every width, that end
//! within what a thread decodes and within rows.

use espalier_interface::DType;
use espalier_interface::format::{BitOrder, BlockMap, CodeRows, RowOrder};
use espalier_tests_gpu::StepFormat;

use super::{SHAPES, assert_each};

#[test]
fn vectors_across_rows_have_the_references_values() {
    let (low, stream) = (BitOrder::LowFirst, BitOrder::Stream);
    let mut cases = Vec::new();
    for count in [3, 1, 2] {
        for len in [8, 2, 3, 4, 16, 24, 32, 64] {
            for shape in SHAPES {
                let words = (shape[0] * shape[1]).div_ceil(len).div_ceil(2);
                let stages = [
                    (8, low, DType::F16),
                    (5, stream, DType::BF16),
                    (4, BitOrder::Split { words }, DType::F32),
                ];
                let format = StepFormat::new(shape)
                    .times(BlockMap::Rows, DType::F16)
                    .vectors(len, &stages[..count]);
                cases.push((format!("{count} codebooks of {len}"), format));
            }
        }
    }
    assert_each(&cases);
}

/// Codebooks of the description, among a kernel's arguments and in the card's memory, behind other
/// tables and rows of codes whose lengths are no multiples of what is read at once.
#[test]
fn vectors_of_shared_codebooks_have_the_references_values() {
    let (low, stream) = (BitOrder::LowFirst, BitOrder::Stream);
    let mut cases = Vec::new();
    for (len, bits) in [(2, 8), (6, 5), (8, 9), (16, 4), (64, 6), (4, 10), (3, 6)] {
        for shape in SHAPES {
            let rows = BitOrder::Rows(CodeRows::aligned(7, 3, RowOrder::Stream, 1));
            let words = (shape[0] * shape[1]).div_ceil(len).div_ceil(2);
            let stages = [
                (3, rows),
                (bits, if bits > 8 { stream } else { low }),
                (4, BitOrder::Split { words }),
            ];
            let format = StepFormat::new(shape)
                .times(BlockMap::Rows, DType::F16)
                .coded(BlockMap::Groups { size: 32 }, 1)
                .shared_vectors(len, &stages[..if len == 64 { 2 } else { 3 }]);
            cases.push((format!("shared codebooks of {len}, {bits} bits"), format));
        }
    }
    assert_each(&cases);
}

#[test]
fn vectors_with_wide_codes_have_the_references_values() {
    let (low, stream) = (BitOrder::LowFirst, BitOrder::Stream);
    let mut cases = Vec::new();
    for shape in SHAPES {
        for (len, bits, order) in [
            (8, 16, low),
            (4, 12, stream),
            (6, 9, low),
            (8, 13, stream),
            (16, 16, stream),
            (3, 11, stream),
        ] {
            let rows = |codes, order, alignment| {
                BitOrder::Rows(CodeRows::aligned(codes, bits, order, alignment))
            };
            for order in [
                order,
                rows(7, RowOrder::Stream, 1),
                rows(16, RowOrder::LowFirst, 6),
            ] {
                let format = StepFormat::new(shape)
                    .times(BlockMap::Rows, DType::F16)
                    .vectors(len, &[(bits, order, DType::F16), (8, low, DType::F32)]);
                let name = format!("{bits} bits of vectors of {len}, {order:?}");
                cases.push((name, format));
            }
        }
    }
    assert_each(&cases);
}
