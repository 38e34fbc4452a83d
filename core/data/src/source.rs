//! A file of any kind -> its rows in order, its length and its hash.

use std::path::Path;

use espalier_system::files;
use serde_json::{Map, Value};

use super::error::{DataError, RowFault, RowLocation, RowNumber};
use super::options::DataOptions;
use super::parquet::ParquetRows;
use super::reader::{RawRow, Reader};
use super::{fields, row};

/// A row that is not parsed yet.
pub(super) struct SourceRow {
    /// Its place in the file.
    pub number: RowNumber,
    content: Content,
}

enum Content {
    Text(RawRow),
    Fields(Map<String, Value>),
}

impl SourceRow {
    /// Bytes of text that it holds.
    pub(super) fn bytes(&self) -> usize {
        match &self.content {
            Content::Text(raw) => raw.bytes.as_ref().map_or(0, Vec::len),
            // The size of a short text; the count only bounds how many rows are in memory.
            Content::Fields(_) => 1 << 10,
        }
    }

    /// Its fields, without consuming the row.
    ///
    /// # Errors
    /// As [`SourceRow::fields`].
    pub(super) fn peek(&self, place: &RowLocation) -> Result<Map<String, Value>, DataError> {
        match &self.content {
            Content::Text(raw) => row::parse(raw, place),
            Content::Fields(fields) => Ok(fields.clone()),
        }
    }

    /// Its fields.
    ///
    /// # Errors
    /// [`DataError::Row`] for text that is not a JSON object.
    pub(super) fn fields(self, place: &RowLocation) -> Result<Map<String, Value>, DataError> {
        match self.content {
            Content::Text(raw) => row::parse(&raw, place),
            Content::Fields(fields) => Ok(fields),
        }
    }
}

/// A file that is being read.
pub(super) enum Source {
    Text(Reader),
    Parquet(ParquetRows, u64),
}

impl Source {
    pub(super) fn open(path: &Path, options: &DataOptions) -> Result<Self, DataError> {
        let kind = path.extension().unwrap_or_default();
        if !kind.eq_ignore_ascii_case("parquet") {
            return Reader::open(path).map(Source::Text);
        }
        let length = path.metadata().map_err(|e| DataError::io(path, e))?.len();
        let wanted = fields::FIELDS.map(|field| fields::renamed(&options.fields, field));
        Ok(Source::Parquet(ParquetRows::open(path, &wanted)?, length))
    }

    /// The next row; none after the last.
    pub(super) fn next_row(&mut self) -> Result<Option<SourceRow>, DataError> {
        match self {
            Source::Text(reader) => Ok(reader.next_row()?.map(|raw| SourceRow {
                number: raw.number,
                content: Content::Text(raw),
            })),
            Source::Parquet(rows, _) => Ok(rows.next_row()?.map(|(row, fields)| SourceRow {
                number: RowNumber::Row(row),
                content: Content::Fields(fields),
            })),
        }
    }

    /// Bytes that were read; for parquet, the file's length times the share of rows that were read.
    pub(super) fn bytes_read(&self) -> u64 {
        match self {
            Source::Text(reader) => reader.bytes_read(),
            Source::Parquet(rows, length) => (rows.share().min(1.0) * *length as f64) as u64,
        }
    }

    /// sha256 of the whole file, in hexadecimal, and its length in bytes; to be called after the
    /// last row.
    pub(super) fn finish(self, path: &Path) -> Result<(String, u64), DataError> {
        match self {
            Source::Text(reader) => {
                let bytes = reader.bytes_read();
                Ok((reader.sha256()?, bytes))
            }
            Source::Parquet(_, length) => {
                let hash = files::hash_file(path).map_err(|error| {
                    RowFault::Parquet {
                        reason: error.to_string(),
                    }
                    .at(RowLocation::line(path, 0))
                })?;
                Ok((hash.sha256, length))
            }
        }
    }
}
