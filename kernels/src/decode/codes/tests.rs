//! Codes are unpacked and looked up from any index, on every instruction set.

use espalier_interface::format::{CodeRows, RowOrder};

use super::*;

#[test]
fn codes_unpack_from_any_index() {
    let bytes: Vec<u8> = (0..64u32).map(|i| (i * 83 + 7) as u8).collect();
    for bits in 1..=8 {
        let rows = |codes, order| BitOrder::Rows(CodeRows::aligned(codes, bits, order, 1));
        for order in [
            BitOrder::HighFirst,
            BitOrder::LowFirst,
            BitOrder::Split { words: 16 },
            BitOrder::Split { words: 13 },
            BitOrder::Stream,
            rows(1, RowOrder::Stream),
            rows(7, RowOrder::HighFirst),
            rows(9, RowOrder::LowFirst),
        ] {
            let layout = Codes {
                segment: 0,
                bits,
                order,
            };
            if !layout.is_packable() {
                continue;
            }
            let most = match order {
                BitOrder::Split { words } => words * layout.per_word(),
                _ => 64,
            };
            for (flat, len) in [(0, 40), (1, 1), (3, 2), (5, 30), (7, 57), (8, 0)] {
                let mut out = vec![0; len.min(most as usize - flat)];
                unpack(&bytes, &layout, flat, &mut out);
                let expected = (flat..).map(|flat| layout.read(&bytes, flat as u64));
                assert!(out.iter().copied().zip(expected).all(|(x, y)| x == y));
            }
        }
    }
}

#[test]
fn every_instruction_set_looks_up_the_same() {
    let table: [f32; 16] = std::array::from_fn(|i| i as f32 * 0.3 - 2.0);
    let codes: Vec<u8> = (0..77).map(|i| (i * 7 % 16) as u8).collect();
    for &isa in Isa::available() {
        let mut out = vec![0.0; 77];
        look_up_16(isa, &table, &codes, &mut out);
        assert!(
            out.iter()
                .zip(&codes)
                .all(|(&x, &code)| x == table[usize::from(code)])
        );
    }
}
