//! Packed codes of every width and order are read back as they were written.

use super::*;

fn codes(bits: u32, order: BitOrder) -> Codes {
    Codes {
        segment: 0,
        bits,
        order,
    }
}

#[test]
fn halves_and_tenths_lie_as_hqq_packs_them() {
    // BitPack.pack_4bit_u8 of the rows [1, 2], [3, 4], [5, 6], [7, 8].
    let four = codes(4, BitOrder::Split { words: 4 });
    let mut bytes = [9; 4];
    four.pack(&[1, 2, 3, 4, 5, 6, 7, 8], &mut bytes);
    assert_eq!(bytes, [0x15, 0x26, 0x37, 0x48]);
    // BitPack.pack_3bit_32 of the column 1 .. 7, padded to ten rows.
    let three = codes(3, BitOrder::Split { words: 1 });
    let mut bytes = [9; 4];
    three.pack(&[1, 2, 3, 4, 5, 6, 7], &mut bytes);
    let expected = (0..7).fold(0i32, |word, i| word | (i + 1) << (27 - 3 * i));
    assert_eq!(bytes, expected.to_le_bytes());
    // Six bits take a byte, as in BitPack.pack_8bit_u8.
    let mut bytes = [0; 2];
    codes(6, BitOrder::Split { words: 2 }).pack(&[63, 2], &mut bytes);
    assert_eq!(bytes, [63, 2]);
}

#[test]
fn what_is_packed_is_read_in_every_width_and_order() {
    for bits in [1, 2, 3, 4, 5, 6, 7, 8] {
        for order in [
            BitOrder::HighFirst,
            BitOrder::LowFirst,
            BitOrder::Split { words: 41 },
            BitOrder::Split { words: 7 },
        ] {
            let codes = codes(bits, order);
            if !codes.is_packable() {
                assert_eq!(bits, 3);
                continue;
            }
            let fits = codes.words(41) * codes.per_word();
            let expected: Vec<u8> = (0..fits.min(41))
                .map(|i| (i * 83 + 7) as u8 & codes.mask())
                .collect();
            let len = codes.words(expected.len() as u64) * codes.dtype().bytes();
            let mut bytes = vec![0xff; len as usize];
            codes.pack(&expected, &mut bytes);
            let found = (0..expected.len() as u64).map(|i| codes.read(&bytes, i));
            assert!(found.eq(expected.iter().copied()), "{bits} {order:?}");
        }
    }
}

#[test]
fn wide_codes_and_rows_are_read_as_they_were_written() {
    for bits in 1..=16 {
        for order in [RowOrder::HighFirst, RowOrder::LowFirst, RowOrder::Stream] {
            let rows =
                |codes, alignment| BitOrder::Rows(CodeRows::aligned(codes, bits, order, alignment));
            for order in [
                order.into(),
                rows(7, 1),
                rows(1, 2),
                rows(16, 4),
                rows(100, 32),
            ] {
                let mut codes = codes(bits, order);
                if !codes.is_packable() {
                    assert_eq!(bits, 3);
                    continue;
                }
                let width = codes.dtype().bytes();
                if let BitOrder::Rows(rows) = &mut codes.order {
                    rows.bytes = rows.bytes.next_multiple_of(width);
                    rows.start = 2;
                }
                let expected: Vec<u16> = (0..41u32)
                    .map(|i| (i * 7919 + 7) as u16 & codes.wide_mask())
                    .collect();
                let len = codes.words(41) * codes.dtype().bytes();
                let mut bytes = vec![0xff; len as usize];
                codes.pack_wide(&expected, &mut bytes);
                let found = (0..41).map(|i| codes.read_wide(&bytes, i));
                assert!(found.eq(expected.iter().copied()), "{bits} {order:?}");
            }
        }
    }
}
