//! A parquet file -> its rows, in order, with the columns that formats know.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use espalier_system::files::{FileKind, open_regular};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row};
use parquet::schema::types::Type;
use serde_json::{Map, Number, Value};

use super::error::{DataError, RowFault, RowLocation, RowNumber};
use super::panics::contain;

/// A row with its number, counted from 1.
pub(super) type NumberedRow = (u64, Map<String, Value>);

/// Reads the rows of one file.
pub(super) struct ParquetRows {
    path: PathBuf,
    rows: RowIter<'static>,
    taken: u64,
    total: u64,
}

impl ParquetRows {
    /// Opens `path` for the columns whose names are `wanted`.
    ///
    /// # Errors
    /// [`DataError::Row`] for a file that is not parquet, or is truncated.
    pub(super) fn open(path: &Path, wanted: &[&str]) -> Result<Self, DataError> {
        let (file, _) =
            open_regular(path, FileKind::Rows).map_err(|e| DataError::io(path, e.into()))?;
        let opened = contain(|| rows_of(file, wanted));
        let (rows, total) = opened
            .and_then(|opened| opened.map_err(|e| e.to_string()))
            .map_err(|reason| RowFault::Parquet { reason }.at(RowLocation::line(path, 0)))?;
        Ok(ParquetRows {
            path: path.to_path_buf(),
            rows,
            taken: 0,
            total,
        })
    }

    /// The share of the rows that are read.
    pub(super) fn share(&self) -> f64 {
        self.taken as f64 / self.total.max(1) as f64
    }

    /// The next row with its number, counted from 1.
    ///
    /// # Errors
    /// [`DataError::Row`] for pages that cannot be decoded, and for too few rows.
    pub(super) fn next_row(&mut self) -> Result<Option<NumberedRow>, DataError> {
        let row = contain(|| self.rows.next());
        self.taken += 1;
        let place = || RowLocation::new(&self.path, RowNumber::Row(self.taken));
        let broken = |reason| RowFault::Parquet { reason }.at(place());
        match row.map_err(broken)? {
            Some(Ok(row)) => Ok(Some((self.taken, object(&row)))),
            Some(Err(error)) => Err(broken(error.to_string())),
            // A truncated page looks like the end of the rows.
            None if self.taken <= self.total => Err(broken("the rows end early".into())),
            None => Ok(None),
        }
    }
}

fn rows_of(file: File, wanted: &[&str]) -> Result<(RowIter<'static>, u64), ParquetError> {
    let reader = SerializedFileReader::new(file)?;
    let metadata = reader.metadata().file_metadata();
    let total = metadata.num_rows().max(0) as u64;
    let schema = metadata.schema_descr().root_schema();
    let columns = schema.get_fields().iter();
    let known: Vec<Arc<Type>> = columns
        .filter(|column| wanted.contains(&column.name()))
        .cloned()
        .collect();
    let projection = Type::group_type_builder(schema.name())
        .with_fields(known)
        .build()?;
    let rows = RowIter::from_file_into(Box::new(reader)).project(Some(projection))?;
    Ok((rows, total))
}

fn object(row: &Row) -> Map<String, Value> {
    let columns = row.get_column_iter();
    columns
        .map(|(name, field)| (name.clone(), value(field)))
        .collect()
}

/// A field as JSON. A type that JSON lacks becomes text, so that a message can show it.
fn value(field: &Field) -> Value {
    match field {
        Field::Null => Value::Null,
        Field::Bool(value) => Value::Bool(*value),
        Field::Byte(value) => (*value).into(),
        Field::Short(value) => (*value).into(),
        Field::Int(value) => (*value).into(),
        Field::Long(value) => (*value).into(),
        Field::UByte(value) => (*value).into(),
        Field::UShort(value) => (*value).into(),
        Field::UInt(value) => (*value).into(),
        Field::ULong(value) => (*value).into(),
        Field::Float(value) => float(f64::from(*value)),
        Field::Double(value) => float(*value),
        Field::Str(text) => Value::String(text.clone()),
        Field::Bytes(bytes) => match std::str::from_utf8(bytes.data()) {
            Ok(text) => Value::String(text.to_owned()),
            Err(_) => Value::Object(Map::from_iter([("bytes".to_owned(), bytes.len().into())])),
        },
        Field::Group(row) => Value::Object(object(row)),
        Field::ListInternal(list) => list.elements().iter().map(value).collect(),
        Field::MapInternal(map) => {
            let entries = map.entries().iter();
            let named = entries.map(|(key, entry)| (key.to_string(), value(entry)));
            Value::Object(named.collect())
        }
        other => Value::String(other.to_string()),
    }
}

fn float(value: f64) -> Value {
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}
