//! Codes of a few bits each, packed into the words of a segment and unpacked again.

use serde::{Deserialize, Serialize};

use super::{CodeRows, RowOrder};
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
    /// from `bits i` on, the lowest first, and may straddle two bytes, or three.
    Stream,
    /// Rows of codes, each in one of the other orders but `Split`, that begin at bytes of their
    /// own.
    Rows(CodeRows),
}

impl From<RowOrder> for BitOrder {
    fn from(order: RowOrder) -> Self {
        match order {
            RowOrder::HighFirst => BitOrder::HighFirst,
            RowOrder::LowFirst => BitOrder::LowFirst,
            RowOrder::Stream => BitOrder::Stream,
        }
    }
}

/// Codes of `bits` bits each, one per element or vector in flat order, packed across a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Codes {
    /// Index of the segment, of the dtype that [`Codes::dtype`] gives.
    pub segment: usize,
    /// 1 to 16 as `Stream`. Else 1, 2, 4 or 8; 3 only as `Split`, ten per word of 32 bits; 5, 6 and
    /// 7, each in the lowest bits of a byte; 9 to 16, each in the lowest bits of a word of 16, not
    /// as `Split`. Codes of more than 8 bits stand for vectors only.
    pub bits: u32,
    /// Which word holds each code, and at which bits.
    pub order: BitOrder,
}

impl Codes {
    /// Most bits of a code.
    pub const MOST_BITS: u32 = 16;

    /// Whether a code has more than 8 bits.
    pub fn are_wide(&self) -> bool {
        self.bits > 8
    }

    /// The order of codes within a row, or of all where there are no rows.
    fn order_in_row(&self) -> BitOrder {
        match self.order {
            BitOrder::Rows(rows) => rows.order.into(),
            order => order,
        }
    }

    /// Whether codes of this width can be packed in this order.
    pub fn is_packable(&self) -> bool {
        match (self.bits, self.order_in_row()) {
            (3, order) => matches!(order, BitOrder::Split { .. } | BitOrder::Stream),
            (9.., BitOrder::Split { .. }) => false,
            (bits, _) => (1..=Self::MOST_BITS).contains(&bits),
        }
    }

    /// The type of a word, which is the segment's dtype: i16 for codes of more than 8 bits that are
    /// no `Stream`, i32 for `Split` codes of 3 bits, else u8.
    pub fn dtype(&self) -> DType {
        match (self.bits, self.order_in_row()) {
            (3, BitOrder::Split { .. }) => DType::I32,
            (9.., BitOrder::HighFirst | BitOrder::LowFirst) => DType::I16,
            _ => DType::U8,
        }
    }

    /// Slots per word; of a stream, whole codes per byte.
    #[inline]
    pub fn per_word(&self) -> u64 {
        // Dividing 32 bits takes a fraction of the time: this is asked for every code.
        (8 * self.dtype().bytes() as u32 / self.bits).into()
    }

    /// Number of words for `elements` codes. For `Split` it is given, and may be too few.
    pub fn words(&self, elements: u64) -> u64 {
        match self.order {
            BitOrder::Split { words } => words,
            BitOrder::Stream => elements.saturating_mul(self.bits.into()).div_ceil(8),
            BitOrder::Rows(_) if elements == 0 => 0,
            BitOrder::Rows(rows) => {
                let before = (elements - 1) / rows.codes.max(1);
                let begin = before.saturating_mul(rows.bytes).saturating_add(rows.start);
                let last = self.of_row(rows).words(elements - before * rows.codes);
                (begin / self.dtype().bytes()).saturating_add(last)
            }
            _ => elements.div_ceil(self.per_word()),
        }
    }

    /// The word of code `flat`, and the shift of the code within the word in bits. Of a stream the
    /// word is that of the code's lowest bit; what straddles is in the lowest bits of the next.
    #[inline]
    pub fn place(&self, flat: u64) -> (u64, u32) {
        match self.order {
            BitOrder::Stream => {
                let bit = flat * u64::from(self.bits);
                return (bit / 8, (bit % 8) as u32);
            }
            BitOrder::Rows(_) => {
                let run = self.run(flat);
                let (word, shift) = run.codes.place(run.first);
                return (run.byte / self.dtype().bytes() + word, shift);
            }
            _ => {}
        }
        let per_word = self.per_word();
        let (word, slot) = match self.order {
            BitOrder::Split { words } => (flat % words, flat / words),
            _ => (flat / per_word, flat % per_word),
        };
        let below = match self.order {
            BitOrder::LowFirst => slot,
            _ => per_word - 1 - slot,
        };
        (word, self.bits * below as u32)
    }

    /// Writes the order as one without rows, and as `LowFirst`, where that is the same layout.
    pub(super) fn simplify(&mut self) {
        if let BitOrder::Rows(rows) = self.order
            && self.is_packable()
            && rows.are_dense(self.bits)
        {
            self.order = rows.order.into();
        }
        let is_power = matches!(self.bits, 1 | 2 | 4 | 8);
        match &mut self.order {
            order @ BitOrder::Stream if is_power => *order = BitOrder::LowFirst,
            BitOrder::Rows(rows) if rows.order == RowOrder::Stream && is_power => {
                rows.order = RowOrder::LowFirst;
            }
            _ => {}
        }
    }

    /// The mask of one code; of one with more than 8 bits its lowest 8.
    pub fn mask(&self) -> u8 {
        self.wide_mask() as u8
    }

    /// The mask of one code of at most 16 bits.
    pub fn wide_mask(&self) -> u16 {
        ((1u32 << self.bits) - 1) as u16
    }

    /// Code number `flat` of a packed segment; of one with more than 8 bits its lowest 8.
    pub fn read(&self, bytes: &[u8], flat: u64) -> u8 {
        self.read_wide(bytes, flat) as u8
    }

    /// Code number `flat` of a packed segment, of at most 16 bits.
    pub fn read_wide(&self, bytes: &[u8], flat: u64) -> u16 {
        let (word, shift) = self.place(flat);
        let width = self.dtype().bytes() as usize;
        let bytes = &bytes[word as usize * width..];
        // A word, or as many bytes as hold the code.
        let held = width.max((shift + self.bits).div_ceil(8) as usize);
        let parts = bytes[..held].iter().zip(0..);
        let value = parts.fold(0, |sum, (&byte, at)| sum | u32::from(byte) << (8 * at));
        (value >> shift) as u16 & self.wide_mask()
    }

    /// Packs the codes of a whole weight, of at most 8 bits, into its segment; the rest of the
    /// segment becomes 0.
    ///
    /// # Panics
    /// Where `bytes` has too few words.
    pub fn pack(&self, codes: &[u8], bytes: &mut [u8]) {
        bytes.fill(0);
        let BitOrder::Split { words } = self.order else {
            return self.put_all(codes, bytes);
        };
        // Slot by slot: the compiler vectorizes loops over words.
        let (words, mask) = (words as usize, self.mask());
        for (slot, run) in codes.chunks(words).enumerate() {
            let (_, shift) = self.place((slot * words) as u64);
            if self.dtype() == DType::U8 {
                let bytes = &mut bytes[..run.len()];
                for (byte, &code) in bytes.iter_mut().zip(run) {
                    *byte |= (code & mask) << shift;
                }
            } else {
                let words = &mut bytes[..4 * run.len()];
                for (word, &code) in words.as_chunks_mut::<4>().0.iter_mut().zip(run) {
                    let value = u32::from(code & mask) << shift;
                    *word = (u32::from_le_bytes(*word) | value).to_le_bytes();
                }
            }
        }
    }

    /// [`Codes::pack`] of codes of at most 16 bits.
    ///
    /// # Panics
    /// Where `bytes` has too few words.
    pub fn pack_wide(&self, codes: &[u16], bytes: &mut [u8]) {
        bytes.fill(0);
        self.put_all(codes, bytes);
    }

    /// Writes codes to zeros.
    fn put_all<C: Copy + Into<u16>>(&self, codes: &[C], bytes: &mut [u8]) {
        let (mask, width) = (self.wide_mask(), self.dtype().bytes() as usize);
        for (flat, &code) in codes.iter().enumerate() {
            let (word, shift) = self.place(flat as u64);
            let value = u32::from(code.into() & mask) << shift;
            for (at, part) in (word as usize * width..).zip(value.to_le_bytes()) {
                if part != 0 {
                    bytes[at] |= part;
                }
            }
        }
    }
}

impl CodeRows {
    /// Rows of `codes` codes of `bits` bits, each from the next multiple of `alignment` bytes on,
    /// from byte 0.
    ///
    /// # Panics
    /// Where `bits` or `alignment` is 0.
    pub fn aligned(codes: u64, bits: u32, order: RowOrder, alignment: u64) -> Self {
        let row = Codes {
            segment: 0,
            bits,
            order: order.into(),
        };
        let bytes = row.words(codes) * row.dtype().bytes();
        CodeRows {
            codes,
            bytes: bytes.next_multiple_of(alignment),
            start: 0,
            order,
        }
    }

    /// Whether its rows follow each other without a gap from byte 0 on, so that codes of `bits`
    /// bits lie as they would without rows.
    fn are_dense(&self, bits: u32) -> bool {
        let row = Codes {
            segment: 0,
            bits,
            order: self.order.into(),
        };
        let fills_words = match self.order {
            RowOrder::Stream => self.codes.saturating_mul(bits.into()).is_multiple_of(8),
            _ => self.codes.is_multiple_of(row.per_word()),
        };
        let bytes = row.words(self.codes).saturating_mul(row.dtype().bytes());
        self.start == 0 && fills_words && self.bytes == bytes
    }
}

/// Codes that follow each other in one of the orders without rows, beginning at a byte of the
/// segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeRun {
    /// Their layout from that byte on.
    pub codes: Codes,
    /// The byte at which they begin.
    pub byte: u64,
    /// Index of a code among them.
    pub first: u64,
    /// Codes from that one to the end of the row; as many as there can be where codes have no rows.
    pub left: u64,
}

impl Codes {
    /// The layout of a row alone.
    pub(super) fn of_row(&self, rows: CodeRows) -> Codes {
        Codes {
            order: rows.order.into(),
            ..self.clone()
        }
    }

    /// The row of code `flat`. Codes without rows are one row.
    ///
    /// # Panics
    /// Where rows have no codes.
    #[inline]
    pub fn run(&self, flat: u64) -> CodeRun {
        let BitOrder::Rows(rows) = self.order else {
            return CodeRun {
                codes: self.clone(),
                byte: 0,
                first: flat,
                left: u64::MAX - flat,
            };
        };
        let (row, first) = (flat / rows.codes, flat % rows.codes);
        CodeRun {
            codes: self.of_row(rows),
            byte: rows.start + row * rows.bytes,
            first,
            left: rows.codes - first,
        }
    }
}

#[cfg(test)]
mod tests;
