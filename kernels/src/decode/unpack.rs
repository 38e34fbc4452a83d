//! Bytes -> the 1, 2, 4 or 8 bit codes in them, one a byte.

use espalier_interface::format::{BitOrder, Codes};

/// Writes the codes of the elements from `flat` on.
pub fn unpack(bytes: &[u8], codes: &Codes, flat: usize, out: &mut [u8]) {
    let per_byte = 8 / codes.bits as usize;
    let mask = ((1u32 << codes.bits) - 1) as u8;
    let shift = |slot: usize| match codes.order {
        BitOrder::HighFirst => 8 - codes.bits as usize * (slot + 1),
        BitOrder::LowFirst => codes.bits as usize * slot,
    };
    // Elements before the first whole byte, whole bytes, and what is left of the last.
    let lead = (flat.wrapping_neg() % per_byte).min(out.len());
    let (head, rest) = out.split_at_mut(lead);
    for (i, code) in head.iter_mut().enumerate() {
        let at = flat + i;
        *code = (bytes[at / per_byte] >> shift(at % per_byte)) & mask;
    }
    let bytes = &bytes[(flat + lead) / per_byte..];
    for (codes, &byte) in rest.chunks_mut(per_byte).zip(bytes) {
        for (slot, code) in codes.iter_mut().enumerate() {
            *code = (byte >> shift(slot)) & mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_within_a_byte() {
        let codes = Codes {
            segment: 0,
            bits: 2,
            order: BitOrder::HighFirst,
        };
        let mut out = [9; 5];
        unpack(&[0b00_01_10_11, 0b11_10_01_00], &codes, 2, &mut out);
        assert_eq!(out, [2, 3, 3, 2, 1]);
    }
}
