//! The place of a row: its file, and its line or its number.

use std::fmt;
use std::path::{Path, PathBuf};

/// Where a row begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowLocation {
    /// The file.
    pub path: PathBuf,
    /// The row's place in it.
    pub number: RowNumber,
}

/// The place of a row in its file, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowNumber {
    /// Its line, where rows are lines.
    Line(u64),
    /// Its number, in an array or a file without lines.
    Row(u64),
}

/// The bit of a stored number that says that it is no line. No file has as many rows.
const ROW: u64 = 1 << 63;

impl RowNumber {
    /// The place as one number, which [`RowNumber::stored`] reads.
    pub(crate) fn to_bits(self) -> u64 {
        match self {
            RowNumber::Line(line) => line,
            RowNumber::Row(row) => row | ROW,
        }
    }

    /// The place of [`RowNumber::to_bits`].
    pub(crate) fn stored(bits: u64) -> Self {
        match bits & ROW {
            0 => RowNumber::Line(bits),
            _ => RowNumber::Row(bits & !ROW),
        }
    }
}

impl RowLocation {
    pub(crate) fn new(path: &Path, number: RowNumber) -> Self {
        RowLocation {
            path: path.to_path_buf(),
            number,
        }
    }

    /// A line of `path`.
    pub(crate) fn line(path: &Path, line: u64) -> Self {
        RowLocation::new(path, RowNumber::Line(line))
    }
}

impl fmt::Display for RowLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.number {
            RowNumber::Line(line) => write!(f, "{path}:{line}"),
            RowNumber::Row(row) => write!(f, "{path} row {row}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_named_as_files_are_read_and_come_back_from_storage() {
        for (number, named) in [
            (RowNumber::Line(7), "rows.x:7"),
            (RowNumber::Row(2), "rows.x row 2"),
            (
                RowNumber::Row(u64::MAX >> 1),
                "rows.x row 9223372036854775807",
            ),
        ] {
            let place = RowLocation::new(Path::new("rows.x"), number);
            assert_eq!(place.to_string(), named);
            assert_eq!(RowNumber::stored(number.to_bits()), number);
        }
    }
}
