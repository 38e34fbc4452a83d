//! A packed run of codes of 9 to 16 bits -> two bytes per code.

use espalier_interface::format::{BitOrder, Codes};

use super::codes::each_row;

/// Writes the codes with the flat indices `flat ..` to `out`.
///
/// # Panics
/// Where `bytes` ends before the last code.
#[inline(always)]
pub(super) fn unpack_wide(bytes: &[u8], layout: &Codes, flat: usize, out: &mut [u16]) {
    each_row(bytes, layout, flat, out, |bytes, layout, flat, out| {
        let mask = layout.wide_mask();
        if layout.order == BitOrder::Stream {
            return unpack_stream(bytes, layout, flat, out);
        }
        let words = &bytes.as_chunks::<2>().0[flat..flat + out.len()];
        for (out, word) in out.iter_mut().zip(words) {
            *out = u16::from_le_bytes(*word) & mask;
        }
    });
}

/// A code and what is before it in its first byte have at most 23 bits.
#[inline(always)]
fn unpack_stream(bytes: &[u8], layout: &Codes, flat: usize, out: &mut [u16]) {
    let (bits, mask) = (layout.bits as usize, layout.wide_mask());
    for (out, flat) in out.iter_mut().zip(flat..) {
        let (byte, shift) = (flat * bits / 8, flat * bits % 8);
        *out = match bytes[byte..].first_chunk::<4>() {
            Some(word) => (u32::from_le_bytes(*word) >> shift) as u16 & mask,
            None => layout.read_wide(bytes, flat as u64),
        };
    }
}

#[cfg(test)]
mod tests {
    use espalier_interface::format::{CodeRows, RowOrder};

    use super::*;

    #[test]
    fn wide_codes_unpack_from_any_index() {
        for bits in 9..=16 {
            let rows = |codes, order| BitOrder::Rows(CodeRows::aligned(codes, bits, order, 2));
            for order in [
                BitOrder::HighFirst,
                BitOrder::LowFirst,
                BitOrder::Stream,
                rows(5, RowOrder::Stream),
                rows(8, RowOrder::HighFirst),
            ] {
                let layout = Codes {
                    segment: 0,
                    bits,
                    order,
                };
                let len = layout.words(64) * layout.dtype().bytes();
                let bytes: Vec<u8> = (0..len).map(|i| (i * 83 + 7) as u8).collect();
                for (flat, len) in [(0, 40), (1, 1), (3, 2), (5, 30), (7, 57), (8, 0)] {
                    let mut out = vec![0; len];
                    unpack_wide(&bytes, &layout, flat, &mut out);
                    let expected = (flat..).map(|flat| layout.read_wide(&bytes, flat as u64));
                    assert!(out.iter().copied().zip(expected).all(|(x, y)| x == y));
                }
            }
        }
    }
}
