//! The header of a safetensors file -> checked byte ranges of named tensors.
//!
//! The types of an entry are the `safetensors` crate's. The checks are a superset of the crate's,
//! which accepts duplicate names. Each error names the tensor and the problem.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::TensorInfo;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use super::FileError;
use super::json_file::UniqueMap;

/// Bytes before the header: its length, u64 little-endian.
pub(super) const LENGTH_BYTES: u64 = 8;
/// Longest header, in bytes (the limit of the `safetensors` crate, `MAX_HEADER_SIZE`).
pub(super) const MAX_HEADER_BYTES: u64 = 100_000_000;
/// The entry for free text.
pub(super) const METADATA_KEY: &str = "__metadata__";
/// Longest tensor name, in bytes; real ones stay below 200.
const MAX_NAME_BYTES: usize = 4096;

/// One tensor of a header; the range is from the start of the file.
pub(super) struct HeaderTensor {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<u64>,
    pub start: u64,
    pub bytes: u64,
}

/// A checked header: tensors by their place in the file, without overlap or hole.
pub(super) struct Header {
    pub tensors: Vec<HeaderTensor>,
    pub metadata: Vec<(String, String)>,
}

/// Reads and checks the header of `file`, which has `file_bytes` bytes; `path` is for messages.
pub(super) fn read_header(path: &Path, file: &File, file_bytes: u64) -> Result<Header, FileError> {
    if file_bytes < LENGTH_BYTES {
        return Err(FileError::NoHeader {
            path: path.to_owned(),
            found: file_bytes,
        });
    }
    let fail = |source| FileError::Read {
        path: path.to_owned(),
        source,
    };
    let mut length = [0; LENGTH_BYTES as usize];
    file.read_exact_at(&mut length, 0).map_err(fail)?;
    let header_bytes = u64::from_le_bytes(length);
    if header_bytes > MAX_HEADER_BYTES {
        let (found, limit) = (header_bytes, MAX_HEADER_BYTES);
        return Err(FileError::HeaderTooLarge {
            path: path.to_owned(),
            found,
            limit,
        });
    }
    if header_bytes > file_bytes - LENGTH_BYTES {
        return Err(FileError::HeaderBeyondFile {
            path: path.to_owned(),
            header_bytes,
            file_bytes,
        });
    }
    let mut text = vec![0; header_bytes as usize];
    file.read_exact_at(&mut text, LENGTH_BYTES).map_err(fail)?;
    let raw = parse(&text).map_err(|source| FileError::HeaderJson {
        path: path.to_owned(),
        source,
    })?;
    check(path, raw, LENGTH_BYTES + header_bytes, file_bytes)
}

struct RawHeader {
    tensors: Vec<(String, TensorInfo)>,
    metadata: Vec<(String, String)>,
}

fn parse(text: &[u8]) -> Result<RawHeader, serde_json::Error> {
    let text = std::str::from_utf8(text).map_err(serde_json::Error::custom)?;
    serde_json::from_str(text)
}

/// Checks the entries of `raw` against each other and the file's size.
fn check(
    path: &Path,
    raw: RawHeader,
    data_start: u64,
    file_bytes: u64,
) -> Result<Header, FileError> {
    let RawHeader {
        tensors: mut infos,
        metadata,
    } = raw;
    infos.sort_by(|left, right| {
        (left.1.data_offsets, &left.0).cmp(&(right.1.data_offsets, &right.0))
    });
    let mut tensors = Vec::with_capacity(infos.len());
    let mut expected_start = 0;
    for (name, info) in infos {
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
            let found = name.chars().take(80).collect();
            return Err(FileError::TensorName {
                path: path.to_owned(),
                found,
            });
        }
        let (start, end) = (info.data_offsets.0 as u64, info.data_offsets.1 as u64);
        if start != expected_start || end < start {
            let (path, tensor) = (path.to_owned(), name);
            return Err(FileError::ByteRange {
                path,
                tensor,
                start,
                end,
                expected_start,
            });
        }
        let shape: Vec<u64> = info.shape.iter().map(|&size| size as u64).collect();
        let Some(expected) = tensor_bytes(&shape, info.dtype) else {
            let (path, dtype) = (path.to_owned(), info.dtype);
            return Err(FileError::ShapeOverflow {
                path,
                tensor: name,
                shape,
                dtype,
            });
        };
        if end - start != expected {
            return Err(FileError::ByteCount {
                path: path.to_owned(),
                tensor: name,
                shape,
                dtype: info.dtype,
                expected,
                found: end - start,
            });
        }
        // No overflow: the ranges are checked against the file's size below before any use.
        let start = data_start.saturating_add(start);
        tensors.push(HeaderTensor {
            name,
            dtype: info.dtype,
            shape,
            start,
            bytes: expected,
        });
        expected_start = end;
    }
    let found = file_bytes - data_start;
    if expected_start != found {
        let (path, expected) = (path.to_owned(), expected_start);
        return Err(FileError::DataLength {
            path,
            expected,
            found,
        });
    }
    Ok(Header { tensors, metadata })
}

/// Bytes of a tensor; `None` where they do not fit 64 bits or are no whole number.
pub(super) fn tensor_bytes(shape: &[u64], dtype: Dtype) -> Option<u64> {
    let elements = shape
        .iter()
        .try_fold(1_u64, |product, &size| product.checked_mul(size))?;
    let bits = elements.checked_mul(dtype.bitsize() as u64)?;
    (bits % 8 == 0).then_some(bits / 8)
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RawHeaderVisitor)
    }
}

struct RawHeaderVisitor;

impl<'de> Visitor<'de> for RawHeaderVisitor {
    type Value = RawHeader;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
        let mut seen = HashSet::new();
        let mut header = RawHeader {
            tensors: Vec::new(),
            metadata: Vec::new(),
        };
        while let Some(name) = map.next_key::<String>()? {
            if !seen.insert(name.clone()) {
                return Err(A::Error::custom(format!("tensor {name:?} occurs twice")));
            }
            let named = |error: A::Error| A::Error::custom(format!("entry {name:?}: {error}"));
            if name == METADATA_KEY {
                let entries: Option<UniqueMap<String>> = map.next_value().map_err(named)?;
                header.metadata = entries.map(|map| map.0).unwrap_or_default();
            } else {
                let info = map.next_value().map_err(named)?;
                header.tensors.push((name, info));
            }
        }
        Ok(header)
    }
}

#[cfg(test)]
mod tests;
