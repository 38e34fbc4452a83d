//! One or more safetensors files -> tensors by name, read by position in bounded chunks.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use espalier_interface::{DType, Services, in_pieces};
use espalier_numeric::widen;
use safetensors::Dtype;

use super::FileError;
use super::file_kind::FileKind;
use super::regular_file::open_regular;
use super::safetensors_header::read_header;
use super::safetensors_writer::interface_dtype;
use super::shard_index::{Shard, read_index};
use super::tree_hash::{PART_BYTES, TreeHash};

/// Bytes of a file held in memory at once while a tensor is converted.
const CHUNK_BYTES: usize = 1 << 20;
/// Most compared names, and the longest one, in the search for names similar to a missing one.
const MAX_COMPARED: (usize, usize) = (50_000, 256);

/// The location of a tensor: its file, dtype, shape and bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    /// The name, as in the file.
    pub name: String,
    /// The stored element type.
    pub dtype: Dtype,
    /// The sizes, outermost first; empty for a scalar.
    pub shape: Vec<u64>,
    /// The bytes in its file, counted from the start of the file.
    pub bytes: Range<u64>,
    file: usize,
}

impl TensorEntry {
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }
}

/// The tensors of a model or adapter. Files stay open, so that a file replaced meanwhile does not
/// mix with the old one. Several threads can read at once.
#[derive(Debug)]
pub struct TensorStore {
    path: PathBuf,
    files: Vec<(PathBuf, File)>,
    entries: Vec<TensorEntry>,
    by_name: HashMap<String, usize>,
    metadata: Vec<(String, String)>,
}

impl TensorStore {
    /// The tensors of the safetensors file `path`.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let mut store = TensorStore::empty(path);
        store.add_file(path, None)?;
        Ok(store)
    }

    /// The tensors of `directory` listed in its index file; unlisted ones are left out.
    pub(super) fn open_index(directory: &Path, index: &Path) -> Result<Self, FileError> {
        let mut store = TensorStore::empty(directory);
        for Shard { path, tensors } in read_index(directory, index)? {
            store.add_file(&path, Some(tensors))?;
        }
        Ok(store)
    }

    fn empty(path: &Path) -> Self {
        TensorStore {
            path: path.to_owned(),
            files: Vec::new(),
            entries: Vec::new(),
            by_name: HashMap::new(),
            metadata: Vec::new(),
        }
    }

    /// Adds the tensors of `path`: all, or the `listed` ones, which must all exist.
    fn add_file(&mut self, path: &Path, listed: Option<Vec<String>>) -> Result<(), FileError> {
        let (file, file_bytes) =
            open_regular(path, FileKind::Tensors).map_err(|error| error.of(path))?;
        let header = read_header(path, &file, file_bytes)?;
        let mut wanted: Option<HashSet<String>> = listed.map(|names| names.into_iter().collect());
        for tensor in header.tensors {
            if wanted
                .as_mut()
                .is_some_and(|wanted| !wanted.remove(&tensor.name))
            {
                continue;
            }
            self.by_name.insert(tensor.name.clone(), self.entries.len());
            self.entries.push(TensorEntry {
                name: tensor.name,
                dtype: tensor.dtype,
                shape: tensor.shape,
                bytes: tensor.start..tensor.start + tensor.bytes,
                file: self.files.len(),
            });
        }
        if let Some(tensor) = wanted.into_iter().flatten().min() {
            return Err(FileError::NotInShard {
                path: path.to_owned(),
                tensor,
            });
        }
        self.files.push((path.to_owned(), file));
        self.metadata.extend(header.metadata);
        Ok(())
    }

    /// All tensors, by file and offset.
    pub fn entries(&self) -> &[TensorEntry] {
        &self.entries
    }

    /// The free text of the files' headers (`format`: `pt`), in file order.
    pub fn metadata(&self) -> &[(String, String)] {
        &self.metadata
    }

    /// The files of the tensors.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|(path, _)| path.as_path())
    }

    /// The file of `entry`.
    pub fn file_of(&self, entry: &TensorEntry) -> &Path {
        &self.files[entry.file].0
    }

    /// True where there is a tensor `name`.
    pub fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The tensor `name`.
    ///
    /// # Errors
    ///
    /// [`FileError::MissingTensor`] with the most similar names.
    pub fn entry(&self, name: &str) -> Result<&TensorEntry, FileError> {
        match self.by_name.get(name) {
            Some(&index) => Ok(&self.entries[index]),
            None => Err(FileError::MissingTensor {
                path: self.path.clone(),
                tensor: name.to_owned(),
                nearest: self.nearest(name),
            }),
        }
    }

    /// The tensor `name`, which must have the shape `expected`.
    pub fn entry_of_shape(&self, name: &str, expected: &[u64]) -> Result<&TensorEntry, FileError> {
        let entry = self.entry(name)?;
        if entry.shape == expected {
            return Ok(entry);
        }
        Err(FileError::Shape {
            path: self.file_of(entry).to_owned(),
            tensor: name.to_owned(),
            expected: expected.to_owned(),
            found: entry.shape.clone(),
        })
    }

    /// Reads all of tensor `name` as f32; `out` has its number of elements.
    ///
    /// bf16 and f16 are exact, f64 is rounded to nearest even.
    pub fn read_tensor_f32(&self, name: &str, out: &mut [f32]) -> Result<(), FileError> {
        let entry = self.entry(name)?;
        if entry.elements() != out.len() as u64 {
            return Err(self.wrong_elements(entry, out.len() as u64));
        }
        self.read_elements_f32(name, 0, out)
    }

    /// As [`TensorStore::read_tensor_f32`], by all threads of `services`. Returns a hash of the
    /// stored bytes that were read, 64 hexadecimal digits: equal only where all of them are.
    ///
    /// # Errors
    ///
    /// As [`TensorStore::read_tensor_f32`].
    pub fn read_hashed_f32(
        &self,
        name: &str,
        out: &mut [f32],
        services: &dyn Services,
    ) -> Result<String, FileError> {
        let entry = self.entry(name)?;
        if entry.elements() != out.len() as u64 {
            return Err(self.wrong_elements(entry, out.len() as u64));
        }
        let dtype = float(entry.dtype).ok_or_else(|| self.not_float(entry))?;
        let width = dtype.bytes() as usize;
        let parts = out.chunks_mut(PART_BYTES / width).enumerate();
        let hashes = in_pieces(services, parts.collect(), |(index, out)| {
            let mut bytes = vec![0; out.len() * width];
            let offset = entry.bytes.start + (index * PART_BYTES) as u64;
            self.read_at(entry, offset, &mut bytes)?;
            widen(&bytes, dtype, out);
            Ok(TreeHash::part(&bytes))
        });
        let hashes: Vec<_> = hashes.into_iter().collect::<Result<_, FileError>>()?;
        Ok(TreeHash::of(hashes).whole())
    }

    /// The hash that [`TensorStore::read_hashed_f32`] returns of tensor `name`, of any dtype, by
    /// all threads of `services`, each of which holds one part.
    ///
    /// # Errors
    ///
    /// [`FileError::MissingTensor`], and a file that cannot be read.
    pub fn hash_tensor(&self, name: &str, services: &dyn Services) -> Result<String, FileError> {
        let entry = self.entry(name)?;
        let parts = entry.bytes.clone().step_by(PART_BYTES);
        let hashes = in_pieces(services, parts.collect(), |offset| {
            let bytes = (entry.bytes.end - offset).min(PART_BYTES as u64);
            let mut bytes = vec![0; bytes as usize];
            self.read_at(entry, offset, &mut bytes)?;
            Ok(TreeHash::part(&bytes))
        });
        let hashes: Vec<_> = hashes.into_iter().collect::<Result<_, FileError>>()?;
        Ok(TreeHash::of(hashes).whole())
    }

    /// Reads the elements of tensor `name` from `first` on as f32, row-major, until `out` is full.
    pub fn read_elements_f32(
        &self,
        name: &str,
        first: u64,
        out: &mut [f32],
    ) -> Result<(), FileError> {
        let entry = self.entry(name)?;
        let end = first.saturating_add(out.len() as u64);
        if end > entry.elements() {
            return Err(self.wrong_elements(entry, end));
        }
        let dtype = float(entry.dtype).ok_or_else(|| self.not_float(entry))?;
        let width = dtype.bytes() as usize;
        let mut chunk = vec![0; CHUNK_BYTES.min(out.len() * width)];
        let mut offset = entry.bytes.start + first * width as u64;
        for part in out.chunks_mut(CHUNK_BYTES / width) {
            let bytes = &mut chunk[..part.len() * width];
            self.read_at(entry, offset, bytes)?;
            widen(bytes, dtype, part);
            offset += bytes.len() as u64;
        }
        Ok(())
    }

    /// Refuses the tensor `name` where its elements are no floats.
    ///
    /// # Errors
    ///
    /// [`FileError::NotFloat`], and as [`TensorStore::entry`].
    pub fn check_float(&self, name: &str) -> Result<(), FileError> {
        let entry = self.entry(name)?;
        match float(entry.dtype) {
            Some(_) => Ok(()),
            None => Err(self.not_float(entry)),
        }
    }

    /// Reads the stored bytes of tensor `name`; `out` has exactly as many.
    pub fn read_tensor_bytes(&self, name: &str, out: &mut [u8]) -> Result<(), FileError> {
        let entry = self.entry(name)?;
        if entry.bytes.end - entry.bytes.start != out.len() as u64 {
            return Err(self.wrong_bytes(entry, out.len() as u64));
        }
        self.read_at(entry, entry.bytes.start, out)
    }

    /// Passes the stored bytes of tensor `name` in order, at most 1 MiB at once.
    ///
    /// # Errors
    ///
    /// A failure to read, or an error of `take`.
    pub fn stream_tensor_bytes<E: From<FileError>>(
        &self,
        name: &str,
        take: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let entry = self.entry(name)?;
        let mut chunk = vec![0; CHUNK_BYTES.min((entry.bytes.end - entry.bytes.start) as usize)];
        let mut offset = entry.bytes.start;
        while offset < entry.bytes.end {
            let count = chunk.len().min((entry.bytes.end - offset) as usize);
            self.read_at(entry, offset, &mut chunk[..count])?;
            take(&chunk[..count])?;
            offset += count as u64;
        }
        Ok(())
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        let sizes = self
            .entries
            .iter()
            .map(|entry| entry.bytes.end - entry.bytes.start);
        sizes.sum()
    }

    fn read_at(&self, entry: &TensorEntry, offset: u64, out: &mut [u8]) -> Result<(), FileError> {
        let (path, file) = &self.files[entry.file];
        file.read_exact_at(out, offset)
            .map_err(|source| match source.kind() {
                std::io::ErrorKind::UnexpectedEof => FileError::EndedEarly {
                    path: path.clone(),
                    tensor: entry.name.clone(),
                    offset,
                    expected: out.len() as u64,
                },
                _ => FileError::Read {
                    path: path.clone(),
                    source,
                },
            })
    }

    fn not_float(&self, entry: &TensorEntry) -> FileError {
        FileError::NotFloat {
            path: self.file_of(entry).to_owned(),
            tensor: entry.name.clone(),
            found: entry.dtype,
        }
    }

    fn wrong_bytes(&self, entry: &TensorEntry, found: u64) -> FileError {
        FileError::ByteCount {
            path: self.file_of(entry).to_owned(),
            tensor: entry.name.clone(),
            shape: entry.shape.clone(),
            dtype: entry.dtype,
            expected: entry.bytes.end - entry.bytes.start,
            found,
        }
    }

    fn wrong_elements(&self, entry: &TensorEntry, expected: u64) -> FileError {
        FileError::Elements {
            path: self.file_of(entry).to_owned(),
            tensor: entry.name.clone(),
            expected,
            found: entry.elements(),
        }
    }

    /// Up to three names most similar to `name`.
    fn nearest(&self, name: &str) -> Vec<String> {
        let (max_names, max_bytes) = MAX_COMPARED;
        let names = self
            .entries
            .iter()
            .map(|entry| entry.name.as_str())
            .take(max_names);
        let mut near: Vec<(f64, &str)> = names
            .filter(|known| known.len() <= max_bytes && name.len() <= max_bytes)
            .map(|known| (strsim::normalized_levenshtein(known, name), known))
            .filter(|(likeness, _)| *likeness > 0.6)
            .collect();
        near.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(right.1)));
        near.into_iter()
            .take(3)
            .map(|(_, known)| known.to_owned())
            .collect()
    }
}

/// The dtype of plain floats; `None` for others.
fn float(dtype: Dtype) -> Option<DType> {
    interface_dtype(dtype).filter(|dtype| dtype.is_float())
}
