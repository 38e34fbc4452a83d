//! Codes of a few bits each, packed into the words of a segment and unpacked again.

use serde::{Deserialize, Serialize};

use crate::DType;

/// Which word holds a code, and at which bits.
///
/// A word has as many slots as codes of that width fit, but for `Stream`. The bits above them are
/// 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BitOrder {
    /// Codes fill one word after the other. The first is in the highest slot, as bitsandbytes
    /// packs.
    HighFirst,
    /// Codes fill one word after the other. The first is in the lowest slot.
    LowFirst,
    /// The codes are cut into runs of `words` codes, and code `i` is in word `i mod words`. The
    /// first run is in the highest slots. So codes in the same slot of neighbouring words are
    /// neighbours in the weight, as HQQ packs (`hqq/core/bitpack.py`). Codes missing from the last
    /// run are 0.
    Split {
        /// Number of words, and of codes per run.
        words: u64,
    },
    /// One stream of bits without gaps, the lowest bit of each byte first: code `i` has the bits
    /// from `bits i` on, the lowest first, and may straddle two bytes.
    Stream,
}

/// Codes of `bits` bits each, one per element in flat order, packed across a whole segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Codes {
    /// Index of the segment: u8, one per word, or i32 for `Split` codes of 3 bits.
    pub segment: usize,
    /// 1 to 8 as `Stream`. Else 1, 2, 4 or 8; 3 only as `Split`, ten per word of 32 bits; 5, 6 and
    /// 7, each in the lowest bits of a byte.
    pub bits: u32,
    /// Which word holds each code, and at which bits.
    pub order: BitOrder,
}

impl Codes {
    /// Whether codes of this width can be packed in this order.
    pub fn is_packable(&self) -> bool {
        match self.bits {
            3 => matches!(self.order, BitOrder::Split { .. } | BitOrder::Stream),
            bits => (1..=8).contains(&bits),
        }
    }

    /// The type of a word, which is the segment's dtype.
    pub fn dtype(&self) -> DType {
        match (self.bits, self.order) {
            (3, BitOrder::Split { .. }) => DType::I32,
            _ => DType::U8,
        }
    }

    /// Slots per word; of a stream, whole codes per byte.
    pub fn per_word(&self) -> u64 {
        8 * self.dtype().bytes() / u64::from(self.bits)
    }

    /// Number of words for `elements` codes. For `Split` it is given, and may be too few.
    pub fn words(&self, elements: u64) -> u64 {
        match self.order {
            BitOrder::Split { words } => words,
            BitOrder::Stream => elements.saturating_mul(self.bits.into()).div_ceil(8),
            _ => elements.div_ceil(self.per_word()),
        }
    }

    /// The word of code `flat`, and the shift of the code within the word in bits. Of a stream the
    /// word is that of the code's lowest bit; what straddles is in the lowest bits of the next.
    #[inline]
    pub fn place(&self, flat: u64) -> (u64, u32) {
        let per_word = self.per_word();
        let (word, slot) = match self.order {
            BitOrder::Stream => {
                let bit = flat * u64::from(self.bits);
                return (bit / 8, (bit % 8) as u32);
            }
            BitOrder::Split { words } => (flat % words, flat / words),
            _ => (flat / per_word, flat % per_word),
        };
        let below = match self.order {
            BitOrder::LowFirst => slot,
            _ => per_word - 1 - slot,
        };
        (word, self.bits * below as u32)
    }

    /// Writes the order as `LowFirst` where that is the same layout.
    pub(super) fn simplify(&mut self) {
        if self.order == BitOrder::Stream && matches!(self.bits, 1 | 2 | 4 | 8) {
            self.order = BitOrder::LowFirst;
        }
    }

    /// The mask of one code.
    pub fn mask(&self) -> u8 {
        ((1u32 << self.bits) - 1) as u8
    }

    /// Code number `flat` of a packed segment.
    pub fn read(&self, bytes: &[u8], flat: u64) -> u8 {
        let (word, shift) = self.place(flat);
        let word = word as usize;
        let value = match self.dtype() {
            DType::U8 if shift + self.bits > 8 => {
                u32::from(u16::from_le_bytes([bytes[word], bytes[word + 1]]))
            }
            DType::U8 => u32::from(bytes[word]),
            _ => {
                let at = &bytes[4 * word..4 * word + 4];
                u32::from_le_bytes(at.try_into().expect("four bytes"))
            }
        };
        (value >> shift) as u8 & self.mask()
    }

    /// Packs the codes of a whole weight into its segment; the rest of the segment becomes 0.
    ///
    /// # Panics
    /// Where `bytes` has too few words.
    pub fn pack(&self, codes: &[u8], bytes: &mut [u8]) {
        bytes.fill(0);
        let words = self.words(codes.len() as u64) as usize;
        let mask = self.mask();
        match self.order {
            // Slot by slot: the compiler vectorizes loops over words.
            BitOrder::Split { .. } => {
                for (slot, run) in codes.chunks(words).enumerate() {
                    let (_, shift) = self.place((slot * words) as u64);
                    match self.dtype() {
                        DType::U8 => {
                            let bytes = &mut bytes[..run.len()];
                            for (byte, &code) in bytes.iter_mut().zip(run) {
                                *byte |= (code & mask) << shift;
                            }
                        }
                        _ => {
                            let words = &mut bytes[..4 * run.len()];
                            for (word, &code) in words.as_chunks_mut::<4>().0.iter_mut().zip(run) {
                                let value = u32::from(code & mask) << shift;
                                *word = (u32::from_le_bytes(*word) | value).to_le_bytes();
                            }
                        }
                    }
                }
            }
            _ => {
                for (flat, &code) in codes.iter().enumerate() {
                    let (word, shift) = self.place(flat as u64);
                    let [low, high] = (u16::from(code & mask) << shift).to_le_bytes();
                    bytes[word as usize] |= low;
                    if high != 0 {
                        bytes[word as usize + 1] |= high;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
