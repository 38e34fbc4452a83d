//! Weights in codes and the dense weights of their values give the same panels.

use espalier_interface::format::{BlockMap, Format};

use super::*;
use crate::decode::{FormatDecoder, Packed};
use crate::matmul::few_rows::tests::{affine, codebook};
use crate::matmul::panel::STRIP;
use crate::matmul::{Dense, Rows, bf16};

/// The lanes of all panels, step after step: what follows a panel's last lane may be anything.
fn packed(isa: Isa, operand: Operand<'_, f32>, some: [Range<usize>; 2]) -> Vec<u32> {
    let [lanes, depth] = some;
    let (cut, steps) = (Cut::Vectors(LANES), isa.steps(depth.len()));
    let mut out = vec![f32::NAN; cut.room(lanes.len(), steps)];
    let mut scratch = vec![f32::NAN; STRIP];
    let count = lanes.len();
    bf16::pack(isa, operand, lanes, depth, cut, &mut out, &mut scratch);
    let panels = (0..cut.count(count)).map(|idx| cut.panel(count, idx));
    let lanes = panels.flat_map(|panel| {
        let rows = out[panel.start * steps..].chunks(panel.stride).take(steps);
        rows.flat_map(move |row| row[..panel.lanes].iter().map(|x| x.to_bits()))
    });
    lanes.collect()
}

/// Compares the panels of windows of a weight, and expects codes to be looked up or not.
fn check((format, data): (Format, Vec<Vec<u8>>), is_looked_up: bool) {
    let segments: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let decoder = FormatDecoder::new(&format).expect("it is described");
    let weight = decoder.weight(&segments);
    let codes = Packed(&weight);
    let (rows, width) = Rows::<f32>::size(&codes);
    let mut values = vec![0.0; rows * width];
    let mut scratch = vec![0.0; STRIP];
    for (row, values) in values.chunks_exact_mut(width).enumerate() {
        for (idx, values) in values.chunks_mut(STRIP).enumerate() {
            let columns = idx * STRIP..idx * STRIP + values.len();
            let (decoded, _) = codes.window(row..row + 1, columns, &mut scratch);
            values.copy_from_slice(&decoded[..values.len()]);
        }
    }
    let dense = Dense::new(&values, rows, width);
    let found = Isa::available()
        .iter()
        .filter(|isa| isa.depth_of_step() > 1);
    for &isa in found.chain(&[Isa::AmxModel]) {
        let what = format!("{isa:?}, {:?}", format.decoding);
        for (rows, columns) in [
            (0..rows, 0..width.min(512)),
            (0..1, 32..width.min(512)),
            (rows / 2..rows, (width - 1) / 512 * 512..width),
        ] {
            let operands = [Operand::over_cols(&codes), Operand::over_cols(&dense)];
            let [found, expected] =
                operands.map(|operand| packed(isa, operand, [rows.clone(), columns.clone()]));
            assert_eq!(
                found, expected,
                "rows {rows:?} of columns {columns:?}, {what}"
            );
            let operands = [Operand::over_rows(&codes), Operand::over_rows(&dense)];
            let [found, expected] =
                operands.map(|operand| packed(isa, operand, [columns.clone(), rows.clone()]));
            assert_eq!(
                found, expected,
                "columns {columns:?} of rows {rows:?}, {what}"
            );
        }
        let steps = isa.steps(32);
        let mut out = vec![0u32; rows.next_multiple_of(32) * steps];
        let some = (0..rows, 0..32);
        let operand = Operand::<f32>::over_cols(&codes);
        // SAFETY: there is room for the panels; the CPU has the instructions.
        let done = unsafe {
            let cut = (Cut::Vectors(LANES), steps);
            pack(isa, operand, some, cut, out.as_mut_ptr(), &mut scratch)
        };
        let has_tables = crate::simd::has_avx512_bf16_and_vbmi();
        assert_eq!(done, is_looked_up && has_tables, "{what}");
    }
}

#[test]
fn codes_are_packed_as_their_values() {
    let flat = |size| BlockMap::Flat { size };
    let split = |words: usize| BitOrder::Split {
        words: words as u64,
    };
    let (high, low) = (BitOrder::HighFirst, BitOrder::LowFirst);
    check(codebook(([33, 128], 4), high, flat(64), true), true);
    check(codebook(([47, 768], 4), low, flat(32), false), true);
    check(codebook(([17, 1056], 4), low, BlockMap::Rows, false), true);
    check(codebook(([35, 12_288], 4), high, flat(64), true), true);
    check(affine([34, 192], 4, split(17 * 192), flat(64)), true);
    check(affine([21, 544], 2, split(6 * 544), flat(32)), true);
    check(affine([33, 640], 4, high, flat(128)), true);
    // Blocks and orders that are decoded to values.
    check(codebook(([18, 96], 4), high, flat(48), true), false);
    check(affine([20, 320], 8, split(20 * 320), flat(64)), false);
}
