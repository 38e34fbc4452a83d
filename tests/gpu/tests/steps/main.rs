//! Formats that are described by steps, on the backend `cuda` over the mock libraries: blocks,
//! vectors and streams of codes end within what a thread decodes, within rows and between windows.
//! The values are those of the reference decoder, bit for bit.

mod vectors;

use std::path::Path;
use std::sync::Arc;

use espalier_backend_cuda::CudaBackend;
use espalier_conformance::{Threads, ops};
use espalier_interface::format::{BitOrder, BlockMap, CodeRows, Format, RowOrder};
use espalier_interface::graph::Attributes;
use espalier_interface::{
    Backend, DType, Device, KernelRequest, Operand, ParamOperand, WeightLayout,
};
use espalier_tests_gpu::{StepFormat, launched, numbers, options, words};

/// Weights `[N, M]`: rows that are whole runs of a thread, and rows that are not.
const SHAPES: [[u64; 2]; 3] = [[6, 80], [9, 48], [7, 101]];

/// A device over the mock libraries, for as long as the process lives.
fn device() -> &'static dyn Device {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let backend = CudaBackend::new(&options(folder, "own"), Arc::new(Threads::new(2)));
    let backend = Box::leak(Box::new(backend.expect("options that it has")));
    Box::leak(backend.open(0).expect("a device"))
}

/// The bytes of each segment, by chance. Numbers are between -2 and 2.
fn filled(format: &Format) -> Vec<Vec<u8>> {
    let segments = format.segments.iter().zip(0..);
    let filled = segments.map(|(segment, seed)| {
        let words = words(segment.len as usize, seed).into_iter();
        match segment.dtype {
            DType::F32 => bytes_of(&numbers(segment.len as usize, seed)),
            DType::BF16 => {
                let numbers = numbers(segment.len as usize, seed).into_iter();
                let high = numbers.map(|x| (x.to_bits() >> 16) as u16);
                high.flat_map(u16::to_le_bytes).collect()
            }
            // Exponents from 2^-3 to 2^0.
            DType::F16 => {
                let halves = words.map(|word| (word & 0x8FFF) as u16 + (12 << 10));
                halves.flat_map(u16::to_le_bytes).collect()
            }
            DType::I16 => {
                let codes = words.map(|word| (word >> 13) as u16);
                codes.flat_map(u16::to_le_bytes).collect()
            }
            DType::I32 => words.flat_map(u32::to_le_bytes).collect(),
            _ => words.map(|word| (word >> 13) as u8).collect(),
        }
    });
    filled.collect()
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The products of rows that are 1 at a column of `columns` and 0 elsewhere: the weight's values
/// there, by the kernel that decodes on the way where rows are whole runs.
fn by_product(format: &Format, segments: &[&[u8]], columns: &[usize]) -> Vec<f32> {
    let [n, m] = format.shape;
    let mut x = vec![0.0f32; columns.len() * m as usize];
    for (row, column) in columns.iter().enumerate() {
        x[row * m as usize + column] = 1.0;
    }
    let x = bytes_of(&x);
    let weight = ParamOperand {
        shape: vec![n, m],
        layout: WeightLayout::Packed(Box::new(format.clone())),
    };
    let request = KernelRequest::new("linear")
        .attributes(Attributes::new())
        .inputs(vec![Operand::per_token(m, DType::F32)])
        .params(vec![weight])
        .outputs(vec![Operand::per_token(n, DType::F32)])
        .limits(columns.len() as u64, 1);
    let operands: Vec<&[u8]> = [x.as_slice()]
        .into_iter()
        .chain(segments.iter().copied())
        .collect();
    let bytes = launched(
        device(),
        &request,
        &operands,
        4 * columns.len() * n as usize,
    );
    let values = bytes.as_chunks::<4>().0.iter();
    values.map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// Requires the reference decoder's values: of all elements, and of some columns by a product.
fn assert_same(name: &str, format: &Format) {
    let [n, m] = format.shape;
    let segments = filled(format);
    let segments: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
    let mut expected = vec![f32::NAN; (n * m) as usize];
    let decoded = format.decode(&segments, 0..n, 0..m, &mut expected);
    decoded.expect("a description");
    let found = ops::decoded(device(), format, &segments, None);
    let found = found.unwrap_or_else(|fault| panic!("{name}: {fault:?}"));
    assert_eq!(bits(&found), bits(&expected), "{name}, [{n}, {m}]");
    if !m.is_multiple_of(16) {
        return;
    }
    let m = m as usize;
    let columns = [0, 7, 8, 15, 16, 31, m - 17, m - 1];
    let found = by_product(format, &segments, &columns);
    for (row, &column) in columns.iter().enumerate() {
        for line in 0..n as usize {
            let (value, found) = (expected[line * m + column], found[row * n as usize + line]);
            // A sum with zeros has no -0.
            assert_eq!(
                (value + 0.0).to_bits(),
                found.to_bits(),
                "{name}, [{line}, {column}]"
            );
        }
    }
}

/// The environment variable with which every case runs; else there are some of each test, because
/// most have kernels of their own to compile.
const ALL: &str = "ESPALIER_TESTS_ALL_FORMATS";

/// Cases of a test that run without [`ALL`].
const SOME: usize = 2;

/// Requires the reference decoder's values of formats with names.
fn assert_each(cases: &[(String, Format)]) {
    let step = match std::env::var_os(ALL) {
        Some(_) => 1,
        None => cases.len().div_ceil(SOME),
    };
    for (name, format) in cases.iter().step_by(step) {
        assert_same(name, format);
    }
}

#[test]
fn streams_of_codes_of_every_width_have_the_references_values() {
    let (high, low) = (BitOrder::HighFirst, BitOrder::LowFirst);
    let mut cases = Vec::new();
    for bits in [3, 1, 2, 4, 5, 6, 7, 8] {
        for shape in SHAPES {
            let blocks = BlockMap::Groups { size: 32 };
            let format = StepFormat::new(shape)
                .minus(blocks, DType::F16)
                .times(blocks, DType::BF16)
                .count(bits, BitOrder::Stream);
            cases.push((format!("a stream of {bits} bits"), format));
        }
    }
    for (bits, order) in [(5, high), (6, low), (7, high)] {
        for shape in SHAPES {
            let format = StepFormat::new(shape)
                .times(BlockMap::Rows, DType::F32)
                .table(bits, order);
            cases.push((format!("{bits} bits of a byte, {order:?}"), format));
        }
    }
    assert_each(&cases);
}

#[test]
fn blocks_that_end_anywhere_have_the_references_values() {
    let maps = [
        BlockMap::Groups { size: 24 },
        BlockMap::Groups { size: 1 },
        BlockMap::Groups { size: 64 },
        BlockMap::Groups { size: 1000 },
        BlockMap::Flat { size: 27 },
        BlockMap::Flat { size: 8 },
        BlockMap::Strided { count: 13 },
        BlockMap::Columns,
        BlockMap::Rows,
    ];
    let mut cases = Vec::new();
    for (blocks, seed) in maps.into_iter().zip(0..) {
        for shape in SHAPES {
            let format = StepFormat::new(shape)
                .times(blocks, DType::BF16)
                .plus(BlockMap::Columns, DType::F32)
                .minus(BlockMap::Flat { size: 64 }, DType::F16)
                .coded(blocks, seed)
                .table(4, BitOrder::HighFirst);
            cases.push((format!("{blocks:?}"), format));
        }
    }
    assert_each(&cases);
}

/// Rows of codes that begin at multiples of bytes: rows of the weight, and others, of whole runs
/// and of parts.
#[test]
fn rows_of_codes_have_the_references_values() {
    let mut cases = Vec::new();
    for shape in SHAPES {
        for (bits, order, alignment) in [
            (4, RowOrder::LowFirst, 4),
            (3, RowOrder::Stream, 1),
            (2, RowOrder::HighFirst, 64),
            (5, RowOrder::Stream, 2),
            (8, RowOrder::LowFirst, 12),
        ] {
            for codes in [shape[1], 16, 5] {
                let rows = CodeRows::aligned(codes, bits, order, alignment);
                let format = StepFormat::new(shape)
                    .times(BlockMap::Groups { size: 32 }, DType::F16)
                    .count(bits, BitOrder::Rows(rows));
                cases.push((format!("{bits} bits, {rows:?}"), format));
            }
        }
    }
    assert_each(&cases);
}

#[test]
fn outliers_replace_the_references_elements() {
    let mut cases = Vec::new();
    for (size, count) in [
        (24, 2),
        (1, 1),
        (8, 8),
        (32, 3),
        (100, 7),
        (128, 40),
        (256, 5),
    ] {
        for shape in SHAPES {
            let format = StepFormat::new(shape)
                .times(BlockMap::Flat { size: 64 }, DType::F32)
                .outliers(size, count, DType::BF16)
                .times(BlockMap::Columns, DType::F16)
                .outliers(size, 1, DType::F32)
                .count(4, BitOrder::HighFirst);
            cases.push((format!("{count} outliers of {size}"), format));
        }
    }
    assert_each(&cases);
}

/// Matrices within a thread, within a warp and of a whole warp, of weights that end within a warp
/// and, for the smallest, within a thread; after codes and vectors that are read one by one, too.
#[test]
fn hadamard_matrices_multiply_the_references_runs() {
    let shapes = [
        ([3, 1536], 512),
        ([3, 64], 64),
        ([3, 48], 16),
        ([5, 6], 2),
        ([3, 24], 8),
        ([3, 12], 4),
        ([3, 96], 32),
        ([5, 128], 128),
        ([3, 768], 256),
    ];
    let mut cases = Vec::new();
    for (shape, size) in shapes {
        let rotated = || {
            let before = StepFormat::new(shape).times(BlockMap::Columns, DType::F16);
            let between = before.hadamard(size).minus(BlockMap::Rows, DType::F32);
            let after = between.hadamard(2.max(size / 4));
            after.times(BlockMap::Groups { size: 48 }, DType::BF16)
        };
        let words = (shape[0] * shape[1]).div_ceil(10);
        cases.push((
            format!("{size} of 4"),
            rotated().count(4, BitOrder::LowFirst),
        ));
        let lanes = rotated().vectors(6, &[(8, BitOrder::LowFirst, DType::F16); 2]);
        cases.push((format!("{size} of vectors"), lanes));
        let split = rotated().count(3, BitOrder::Split { words });
        cases.push((format!("{size} of 3"), split));
    }
    assert_each(&cases);
}

/// Nine tables of 256 values have more bytes than a kernel's arguments.
#[test]
fn tables_that_are_too_long_for_arguments_are_read_from_memory() {
    let mut format = StepFormat::new(SHAPES[0]);
    for seed in 0..Format::MOST_STEPS as u32 {
        format = format.coded(BlockMap::Groups { size: 48 }, 2 * seed);
    }
    assert_same("nine tables", &format.table(8, BitOrder::LowFirst));
}

/// Rows of this length are decoded some at a time, from elements on that no thread begins with.
const WIDE: [u64; 2] = [2, 2_100_001];

#[test]
fn rows_that_begin_anywhere_have_the_references_norms() {
    let format = StepFormat::new(WIDE)
        .times(BlockMap::Groups { size: 96 }, DType::F16)
        .outliers(256, 2, DType::BF16)
        .vectors(
            8,
            &[
                (8, BitOrder::LowFirst, DType::F16),
                (3, BitOrder::Stream, DType::BF16),
            ],
        );
    let segments = filled(&format);
    let segments: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
    let [n, m] = WIDE;
    let mut values = vec![0.0f32; (n * m) as usize];
    let decoded = format.decode(&segments, 0..n, 0..m, &mut values);
    decoded.expect("a description");
    let values = bytes_of(&values);
    let norms = |layout, weight: &[&[u8]]| {
        let param = |shape: [u64; 2], layout| ParamOperand {
            shape: shape.to_vec(),
            layout,
        };
        let dense = || WeightLayout::Dense(DType::F32);
        let request = KernelRequest::new("adapted_row_norms")
            .attributes(Attributes::new().with("alpha", 1.0))
            .params(vec![
                param(WIDE, layout),
                param([1, m], dense()),
                param([n, 1], dense()),
            ])
            .outputs(vec![Operand::flat(n, DType::F32)])
            .limits(1, 1);
        let update = [4 * m, 4 * n].map(|bytes| vec![0; bytes as usize]);
        let update = update.iter().map(Vec::as_slice);
        let operands: Vec<&[u8]> = weight.iter().copied().chain(update).collect();
        launched(device(), &request, &operands, 4 * n as usize)
    };
    let dense = norms(WeightLayout::Dense(DType::F32), &[&values]);
    assert!(dense.iter().any(|byte| *byte != 0));
    assert_eq!(
        norms(WeightLayout::Packed(Box::new(format)), &segments),
        dense
    );
}
