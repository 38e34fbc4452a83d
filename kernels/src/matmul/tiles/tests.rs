//! Units for tiles compared with sums of single products, and packed rows with their elements.

use half::bf16;

use super::*;
use crate::element::Element;
use crate::matmul::bf16::tests::{Bits, alike};
use crate::matmul::bf16_model::round;
use crate::matmul::lying_rows::LyingRows;
use crate::matmul::panel::{Cut, STRIP, TILE_DEPTH};
use crate::matmul::tests::{add_tile, numbers};
use crate::matmul::{Dense, Isa, Operand};

/// `sums + a b`, with `a` of `rows` rows of 32 elements and `b` of 16 pairs of 16 columns.
fn dot(unit: &mut impl TileUnit, rows: usize, a: &[u16], b: &[u16; 512], sums: &[f32]) -> Vec<f32> {
    assert!((a.len(), sums.len()) == (32 * rows, 16 * rows));
    let mut out = vec![f32::NAN; 16 * rows];
    unit.configure(rows);
    // SAFETY: rows of 64 bytes, as many as the tiles have.
    unsafe {
        unit.load::<0>(sums.as_ptr().cast(), 64);
        unit.load::<4>(a.as_ptr().cast(), 64);
        unit.load::<6>(b.as_ptr().cast(), 64);
        unit.dot::<0, 4, 6>();
        unit.store::<0>(out.as_mut_ptr().cast(), 64);
    }
    out
}

/// Compares tiles of every kind of numbers.
fn check(unit: &mut impl TileUnit, count: u32) {
    let mut bits = Bits(0x1234_5678_9ABC_DEF1);
    for idx in 0..count {
        let (kind, rows) = (idx % 5, 1 + idx as usize % 16);
        let a: Vec<u16> = (0..32 * rows).map(|_| bits.half(kind) as u16).collect();
        let b = [(); 512].map(|()| bits.half(kind) as u16);
        let sums: Vec<f32> = (0..16 * rows)
            .map(|_| match kind {
                1 => f32::from_bits(bits.next() & 0x807F_FFFF | (bits.next() % 8 + 122) << 23),
                2 => f32::from_bits(bits.next() & 0x80FF_FFFF),
                _ => f32::from_bits(bits.next()),
            })
            .collect();
        let found = dot(unit, rows, &a, &b, &sums);
        for (at, (&found, &sum)) in found.iter().zip(&sums).enumerate() {
            let (row, lane) = (at / 16, at % 16);
            let elements = (0..32).map(|k| [a[32 * row + k], b[k / 2 * 32 + 2 * lane + k % 2]]);
            let expected = add_tile(sum, elements);
            assert!(
                alike(found, expected),
                "kind {kind}, ({row}, {lane}): {found:e}, expected {expected:e}"
            );
        }
    }
}

#[test]
fn tiles_of_the_model_are_sums_of_single_products() {
    check(&mut TileModel::new(), 2_000);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_model_is_what_the_tiles_of_this_processor_compute() {
    if !is_permitted() {
        return;
    }
    // SAFETY: just asked; this thread has no other unit.
    check(&mut unsafe { amx::Amx::new() }, 20_000);
}

/// Packed rows hold their elements and, beyond the depth, zeros.
fn check_packed<E: Element<Acc = f32>>([rows, depth]: [usize; 2], along: bool) {
    let values = numbers::<E>(rows * depth, 1);
    let matrix = if along {
        Dense::new(&values, rows, depth)
    } else {
        Dense::new(&values, depth, rows)
    };
    let operand = if along {
        Operand::over_cols(&matrix)
    } else {
        Operand::over_rows(&matrix)
    };
    let steps = depth.next_multiple_of(TILE_DEPTH) / 2;
    let (cut, mut scratch) = (Cut::Tiles, vec![0f32; STRIP]);
    // What is not written stays a NaN.
    let mut packed = vec![f32::NAN; cut.room(rows, steps)];
    left::pack(
        Isa::AmxModel,
        operand,
        0..rows,
        0..depth,
        &mut packed,
        &mut scratch,
    );
    for panel in (0..cut.count(rows)).map(|idx| cut.panel(rows, idx)) {
        for (row, step) in panel
            .range()
            .flat_map(|row| (0..steps).map(move |s| (row, s)))
        {
            let bits = |k: usize| match (k < depth, along) {
                (false, _) => 0,
                (true, true) => u32::from(round(values[row * depth + k].load())),
                (true, false) => u32::from(round(values[k * rows + row].load())),
            };
            let tile = panel.start * steps + step / TILE_STEPS * TILE_STEPS * panel.lanes;
            let at = tile + (row - panel.start) * TILE_STEPS + step % TILE_STEPS;
            let expected = bits(2 * step) | bits(2 * step + 1) << 16;
            let found = packed[at].to_bits();
            assert_eq!(found, expected, "{rows} x {depth}, row {row}, step {step}");
        }
    }
}

#[test]
fn packed_rows_are_rows_of_tiles() {
    for shape in [[1, 1], [16, 32], [17, 33], [40, 95], [64, 512], [33, 511]] {
        for along in [true, false] {
            check_packed::<bf16>(shape, along);
            check_packed::<f32>(shape, along);
        }
    }
}

#[test]
fn rows_are_read_as_they_lie_where_they_are_whole_lines() {
    let all = numbers::<bf16>(4 * 128 + 32, 1);
    let line = all.as_ptr().align_offset(ROW_BYTES);
    let found = |first: usize, depth: usize, stride: usize| {
        let matrix = Dense::strided(&all[first..], 3, depth, stride);
        let operand = Operand::<f32>::over_cols(&matrix);
        let rows = left::as_they_lie(operand, 1..3, 0..depth);
        rows.map(|rows| match rows {
            LyingRows::Tiled(values, stride) => (values.as_ptr().addr(), stride),
            LyingRows::Own(..) => panic!("not bf16"),
        })
    };
    let at = all[line..].as_ptr().addr() + 2 * 128;
    assert_eq!(found(line, 64, 128), Some((at, 128)));
    // Another address, rows of another length, and a tile that reaches into the next row.
    assert_eq!(found(line + 1, 64, 128), None);
    assert_eq!(found(line, 64, 120), None);
    assert_eq!(found(line, 70, 128), None);
    let matrix = Dense::new(&all[line..line + 64 * 4], 64, 4);
    let across = Operand::<f32>::over_rows(&matrix);
    assert!(left::as_they_lie(across, 0..4, 0..64).is_none());
}
