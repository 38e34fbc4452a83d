//! Products of sides beside those of whole operands, to the bit.

use super::*;
use crate::matmul::tests::numbers;
use crate::matmul::{Dense, PANEL_ROWS, Rows, multiply_into, space};

const COLS: usize = 53;

/// Fails where a product of `rows` rows has other bits than by [`multiply_into`].
fn check(isa: Isa, rows: usize, depth: usize) {
    let (a, b) = (
        numbers::<f32>(rows * depth, 1),
        numbers::<f32>(depth * COLS, 2),
    );
    let (a, b) = (Dense::new(&a, rows, depth), Dense::new(&b, depth, COLS));
    let sides = (Operand::over_cols(&a), Operand::over_rows(&b));
    let mut memory = vec![f32::NAN; space::<f32>()];
    let mut expected = vec![0.0; rows * COLS];
    let to = (&mut expected[..], COLS);
    multiply_into(isa, sides, to, Update::Overwrite, &mut memory);
    let mut rooms = [rows, COLS].map(|lanes| vec![f32::NAN; Side::<f32>::room(lanes, depth)]);
    let [left, right] = &mut rooms;
    let left = Side::left(isa, sides.0, left, &mut memory);
    let right = Side::right(isa, sides.1, right, &mut memory);
    let mut out = vec![f32::NAN; PANEL_ROWS * ROW];
    let same = |out: &[f32], rows: Range<usize>| {
        for (row, out) in rows.zip(out.chunks(ROW)) {
            let expected = &expected[row * COLS..(row + 1) * COLS];
            assert_eq!(
                &out[..COLS],
                expected,
                "{isa:?}, {depth} elements, row {row}"
            );
        }
    };
    for panel in left.panels() {
        let to = (&mut out[..], ROW);
        left.multiply(panel, &right, 0..COLS, to, Update::Overwrite);
        same(&out, panel.range());
        if depth > ROW {
            continue;
        }
        let (values, stride) = a.window(panel.range(), 0..depth, &mut []);
        let mut lying = vec![f32::NAN; panel.lanes * ROW];
        for (to, from) in lying.chunks_mut(ROW).zip(values.chunks(stride)) {
            to[..depth].copy_from_slice(&from[..depth]);
        }
        as_steps(isa, &mut lying, 0..depth);
        out.fill(0.0);
        right.add_rows((&lying, panel.lanes), 0..depth, (&mut out, ROW));
        same(&out, panel.range());
    }
}

#[test]
fn products_of_some_rows_have_the_bits_of_a_whole_one() {
    let all = Isa::available().iter().copied();
    for isa in all.chain([Isa::Bf16Model, Isa::AmxModel]) {
        for depth in [1, 31, 64, 127, 128, 700] {
            check(isa, 1, depth);
            check(isa, 45, depth);
        }
    }
}

#[test]
fn products_of_columns_have_the_bits_of_packed_ones() {
    const ROWS: usize = 45;
    const STRIDE: usize = 48;
    let numbers_isas = Isa::available().iter().filter(|isa| **isa == isa.vectors());
    for &isa in numbers_isas {
        for depth in [1, 64, 257, 700] {
            // Of each panel's columns, the first rows are 0, as many as they say.
            let blind = |panel: Panel| (panel.start * 7).min(depth);
            let mut a = numbers::<f32>(depth * STRIDE, 1);
            let panels = left_cut::<f32>(isa);
            for panel in (0..panels.count(ROWS)).map(|idx| panels.panel(ROWS, idx)) {
                for row in a.chunks_mut(STRIDE).take(blind(panel)) {
                    row[panel.range()].fill(0.0);
                }
            }
            let b = numbers::<f32>(depth * COLS, 2);
            let (left, right) = (
                Dense::strided(&a, depth, ROWS, STRIDE),
                Dense::new(&b, depth, COLS),
            );
            let sides = (Operand::over_rows(&left), Operand::over_rows(&right));
            let mut memory = vec![f32::NAN; space::<f32>()];
            let mut expected = numbers::<f32>(ROWS * COLS, 3);
            let mut out = vec![f32::NAN; ROWS * ROW];
            for (to, from) in out.chunks_mut(ROW).zip(expected.chunks(COLS)) {
                to[..COLS].copy_from_slice(from);
            }
            let to = (&mut expected[..], COLS);
            multiply_into(isa, sides, to, Update::Accumulate, &mut memory);
            let mut room = vec![f32::NAN; Side::<f32>::room(COLS, depth)];
            let right = Side::right(isa, sides.1, &mut room, &mut memory);
            right.add_columns((&a, STRIDE), (ROWS, blind), (&mut out, ROW));
            for (row, (found, expected)) in out.chunks(ROW).zip(expected.chunks(COLS)).enumerate() {
                assert_eq!(
                    &found[..COLS],
                    expected,
                    "{isa:?}, {depth} rows, column {row}"
                );
            }
        }
    }
}
