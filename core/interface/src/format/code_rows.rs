//! Rows of codes that begin at bytes of their own, and the codes of one row.

use serde::{Deserialize, Serialize};

use super::{BitOrder, Codes};

/// How the codes of a row are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowOrder {
    /// As [`BitOrder::HighFirst`].
    HighFirst,
    /// As [`BitOrder::LowFirst`].
    LowFirst,
    /// As [`BitOrder::Stream`].
    Stream,
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

/// Codes that are cut into rows, each packed on its own: row `k` begins at byte
/// `start + k bytes` of the segment. Bytes between rows may be of anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeRows {
    /// Codes of a row, 1 or more. The last row may have fewer.
    pub codes: u64,
    /// Bytes from the beginning of a row to that of the next, at least those of its codes. In words
    /// of 16 bits a multiple of 2.
    pub bytes: u64,
    /// Byte of the segment at which the first row begins; in words of 16 bits a multiple of 2.
    #[serde(default)]
    pub start: u64,
    /// How the codes of a row are packed.
    pub order: RowOrder,
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
    pub(super) fn are_dense(&self, bits: u32) -> bool {
        let row = Codes {
            segment: 0,
            bits,
            order: self.order.into(),
        };
        let fills_words = match self.order {
            RowOrder::Stream => self.codes.saturating_mul(bits.into()).is_multiple_of(8),
            _ => self.codes.is_multiple_of(row.per_word()),
        };
        self.start == 0 && fills_words && self.bytes == row.words(self.codes) * row.dtype().bytes()
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
