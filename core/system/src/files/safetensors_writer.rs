//! Tensors, one at a time -> a safetensors file, written atomically.

use std::collections::HashSet;
use std::path::Path;

use espalier_interface::DType;
use espalier_numeric::write_numbers;
use safetensors::Dtype;
use safetensors::tensor::TensorInfo;
use serde_json::{Map, Value};

use super::safetensors_header::{LENGTH_BYTES, MAX_HEADER_BYTES, METADATA_KEY, tensor_bytes};
use super::{FileError, PartialFile};

/// A tensor to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// The name in the file.
    pub name: String,
    /// The element type in the file.
    pub dtype: DType,
    /// The sizes, outermost first.
    pub shape: Vec<u64>,
}

impl TensorSpec {
    /// A tensor `name` of `shape`, stored as `dtype`.
    pub fn new(name: impl Into<String>, dtype: DType, shape: impl Into<Vec<u64>>) -> Self {
        TensorSpec {
            name: name.into(),
            dtype,
            shape: shape.into(),
        }
    }

    /// Its dtype and bytes in a file, without its header entry.
    ///
    /// # Errors
    ///
    /// A dtype that files do not have; a size beyond 64 bits. `path` is the file, for messages.
    pub(super) fn stored(&self, path: &Path) -> Result<(Dtype, u64), FileError> {
        let unwritable = |problem| FileError::Unwritable {
            path: path.to_owned(),
            tensor: self.name.clone(),
            problem,
        };
        let dtype = stored_dtype(self.dtype)
            .ok_or_else(|| unwritable(format!("a safetensors file cannot hold {}", self.dtype)))?;
        let bytes = tensor_bytes(&self.shape, dtype)
            .ok_or_else(|| unwritable(format!("its shape {:?} overflows", self.shape)))?;
        Ok((dtype, bytes))
    }
}

/// The destination of the elements of one tensor, in order.
#[derive(Debug)]
pub struct TensorSink<'a> {
    file: &'a mut PartialFile,
    spec: &'a TensorSpec,
    place: &'a mut TensorExtent,
}

/// The bytes of a tensor in its file.
#[derive(Clone, Copy, Debug)]
struct TensorExtent {
    offset: u64,
    expected_bytes: u64,
    found_bytes: u64,
}

impl TensorSink<'_> {
    /// The tensor that is being written.
    pub fn spec(&self) -> &TensorSpec {
        self.spec
    }

    /// Appends stored bytes, little-endian.
    pub fn write_bytes(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let at = self.place.offset + self.place.found_bytes;
        self.place.found_bytes += bytes.len() as u64;
        if self.place.found_bytes > self.place.expected_bytes {
            return Err(announced(self.file, self.spec, *self.place));
        }
        self.file.write_at(at, bytes)
    }

    /// Appends elements, rounded to nearest even where the stored dtype is narrower.
    ///
    /// # Errors
    ///
    /// [`FileError::Unwritable`] where the stored dtype is not a float of 16, 32 or 64 bits.
    pub fn write_f32(&mut self, values: &[f32]) -> Result<(), FileError> {
        const STEP: usize = 4096;
        let dtype = self.spec.dtype;
        if ![DType::F64, DType::F32, DType::BF16, DType::F16].contains(&dtype) {
            return Err(FileError::Unwritable {
                path: self.file.target().to_owned(),
                tensor: self.spec.name.clone(),
                problem: format!("floating-point numbers into a tensor of {dtype}"),
            });
        }
        let mut bytes = Vec::new();
        for values in values.chunks(STEP) {
            write_numbers(values, dtype, &mut bytes);
            self.write_bytes(&bytes)?;
        }
        Ok(())
    }
}

fn announced(file: &PartialFile, spec: &TensorSpec, place: TensorExtent) -> FileError {
    FileError::Announced {
        path: file.target().to_owned(),
        tensor: spec.name.clone(),
        expected: place.expected_bytes,
        found: place.found_bytes,
    }
}

/// A safetensors file that is being written, its tensors in any order.
#[derive(Debug)]
pub(super) struct SafetensorsFile<'a> {
    file: PartialFile,
    specs: &'a [TensorSpec],
    places: Vec<TensorExtent>,
    /// Indices of the tensors by their place in the file.
    order: Vec<usize>,
}

impl<'a> SafetensorsFile<'a> {
    /// Starts `path` with its header.
    ///
    /// # Errors
    ///
    /// As [`write_safetensors`].
    pub(super) fn create(
        path: &Path,
        metadata: &[(&str, &str)],
        specs: &'a [TensorSpec],
    ) -> Result<Self, FileError> {
        let layout = Layout::new(path, metadata, specs)?;
        let start = LENGTH_BYTES + layout.header.len() as u64;
        let mut file = PartialFile::create(path, start + layout.data_bytes)?;
        file.write(&(layout.header.len() as u64).to_le_bytes())?;
        file.write(&layout.header)?;
        let nowhere = TensorExtent {
            offset: 0,
            expected_bytes: 0,
            found_bytes: 0,
        };
        let mut places = vec![nowhere; specs.len()];
        let mut offset = start;
        for &(index, expected_bytes) in &layout.order {
            places[index] = TensorExtent {
                offset,
                expected_bytes,
                found_bytes: 0,
            };
            offset += expected_bytes;
        }
        Ok(SafetensorsFile {
            file,
            specs,
            places,
            order: layout.order.into_iter().map(|(index, _)| index).collect(),
        })
    }

    /// The destination of tensor `specs[index]`.
    pub(super) fn tensor(&mut self, index: usize) -> TensorSink<'_> {
        TensorSink {
            file: &mut self.file,
            spec: &self.specs[index],
            place: &mut self.places[index],
        }
    }

    /// Refuses an incomplete tensor.
    fn check_whole(&self, index: usize) -> Result<(), FileError> {
        let place = self.places[index];
        if place.found_bytes == place.expected_bytes {
            Ok(())
        } else {
            Err(announced(&self.file, &self.specs[index], place))
        }
    }

    /// Commits the file, once every tensor is complete.
    pub(super) fn commit(self) -> Result<(), FileError> {
        (0..self.specs.len()).try_for_each(|index| self.check_whole(index))?;
        self.file.commit()
    }
}

/// Writes the tensors `specs` and the header text `metadata` to `path` atomically.
///
/// `fill` is called once for each tensor, with its index in `specs`, and writes exactly its
/// elements. Only the bytes of one write are in memory. Tensors are stored in the given order,
/// wider dtypes first, so that each is aligned to its dtype, as in the format's own writer.
///
/// # Errors
///
/// [`FileError::DiskFull`] with the file and its needed bytes; errors of `fill`. After any error
/// the target is unchanged.
pub fn write_safetensors<E: From<FileError>>(
    path: &Path,
    metadata: &[(&str, &str)],
    specs: &[TensorSpec],
    mut fill: impl FnMut(usize, &mut TensorSink<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut file = SafetensorsFile::create(path, metadata, specs)?;
    for index in file.order.clone() {
        fill(index, &mut file.tensor(index))?;
        file.check_whole(index)?;
    }
    file.commit()?;
    Ok(())
}

/// The header of a file and the order of its tensors, with the bytes of each.
struct Layout {
    header: Vec<u8>,
    order: Vec<(usize, u64)>,
    data_bytes: u64,
}

impl Layout {
    fn new(
        path: &Path,
        metadata: &[(&str, &str)],
        specs: &[TensorSpec],
    ) -> Result<Self, FileError> {
        let unwritable = |tensor: &str, problem: String| FileError::Unwritable {
            path: path.to_owned(),
            tensor: tensor.to_owned(),
            problem,
        };
        let mut stored = Vec::with_capacity(specs.len());
        for (index, spec) in specs.iter().enumerate() {
            let (dtype, bytes) = spec.stored(path)?;
            stored.push((index, dtype, bytes));
        }
        stored.sort_by_key(|(_, dtype, _)| std::cmp::Reverse(dtype.bitsize()));

        let mut entries = Map::new();
        if !metadata.is_empty() {
            let text = metadata
                .iter()
                .map(|(key, value)| ((*key).into(), (*value).into()));
            entries.insert(METADATA_KEY.to_owned(), Value::Object(text.collect()));
        }
        let mut names = HashSet::from([METADATA_KEY]);
        let mut data_bytes = 0_u64;
        for &(index, dtype, bytes) in &stored {
            let TensorSpec { name, shape, .. } = &specs[index];
            if !names.insert(name) {
                return Err(unwritable(name, "there is another of that name".to_owned()));
            }
            let end = data_bytes
                .checked_add(bytes)
                .ok_or_else(|| unwritable(name, "the file would be too large".to_owned()))?;
            let info = TensorInfo {
                dtype,
                shape: shape.iter().map(|&size| size as usize).collect(),
                data_offsets: (data_bytes as usize, end as usize),
            };
            let info = serde_json::to_value(info).expect("plain numbers and strings");
            entries.insert(name.clone(), info);
            data_bytes = end;
        }
        let mut header = Value::Object(entries).to_string().into_bytes();
        header.resize(header.len().next_multiple_of(8), b' ');
        if header.len() as u64 > MAX_HEADER_BYTES {
            return Err(unwritable(
                "",
                format!("a header of {} bytes", header.len()),
            ));
        }
        let order = stored
            .into_iter()
            .map(|(index, _, bytes)| (index, bytes))
            .collect();
        Ok(Layout {
            header,
            order,
            data_bytes,
        })
    }
}

/// Dtypes of the interface and of files.
const DTYPES: [(DType, Dtype); 11] = [
    (DType::F64, Dtype::F64),
    (DType::F32, Dtype::F32),
    (DType::BF16, Dtype::BF16),
    (DType::F16, Dtype::F16),
    (DType::F8_E4M3, Dtype::F8_E4M3),
    (DType::F8_E5M2, Dtype::F8_E5M2),
    (DType::I64, Dtype::I64),
    (DType::I32, Dtype::I32),
    (DType::I16, Dtype::I16),
    (DType::I8, Dtype::I8),
    (DType::U8, Dtype::U8),
];

/// The dtype of a file for a dtype of the interface.
fn stored_dtype(dtype: DType) -> Option<Dtype> {
    let found = DTYPES.iter().find(|(known, _)| *known == dtype);
    found.map(|(_, stored)| *stored)
}

/// The dtype of the interface for a dtype of a file.
pub fn interface_dtype(stored: Dtype) -> Option<DType> {
    let found = DTYPES.iter().find(|(_, known)| *known == stored);
    found.map(|(dtype, _)| *dtype)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specs(list: &[(&str, DType, &[u64])]) -> Vec<TensorSpec> {
        list.iter()
            .map(|(name, dtype, shape)| TensorSpec::new(*name, *dtype, *shape))
            .collect()
    }

    #[test]
    fn headers_are_aligned_and_wider_dtypes_come_first() {
        let list = specs(&[
            ("h", DType::BF16, &[3]),
            ("b", DType::F32, &[2]),
            ("a", DType::F32, &[]),
            ("i", DType::BF16, &[1, 1]),
        ]);
        let layout = Layout::new(Path::new("f"), &[("format", "pt")], &list).unwrap();
        assert_eq!(layout.order, [(1, 8), (2, 4), (0, 6), (3, 2)]);
        assert_eq!((layout.header.len() % 8, layout.data_bytes), (0, 20));
        let text = String::from_utf8(layout.header).unwrap();
        assert!(
            text.starts_with(r#"{"__metadata__":{"format":"pt"},"b":{"dtype":"F32","#),
            "{text}"
        );
    }

    #[test]
    fn impossible_files_are_refused() {
        let refused = |list: &[(&str, DType, &[u64])]| {
            Layout::new(Path::new("f"), &[], &specs(list))
                .err()
                .unwrap()
                .to_string()
        };
        let twice: [(&str, DType, &[u64]); 2] = [("a", DType::F32, &[1]), ("a", DType::F32, &[1])];
        assert!(refused(&twice).contains("another of that name"));
        assert!(refused(&[("__metadata__", DType::F32, &[1])]).contains("another of that name"));
        assert!(refused(&[("a", DType::COMPUTE, &[1])]).contains("cannot hold compute"));
        assert!(refused(&[("a", DType::F32, &[1 << 40, 1 << 40])]).contains("overflows"));
    }
}
