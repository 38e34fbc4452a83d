//! Rows of codes that begin at bytes of their own.

use serde::{Deserialize, Serialize};

/// How the codes of a row are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowOrder {
    /// As [`super::BitOrder::HighFirst`].
    HighFirst,
    /// As [`super::BitOrder::LowFirst`].
    LowFirst,
    /// As [`super::BitOrder::Stream`].
    Stream,
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
