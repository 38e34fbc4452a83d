//! Golden safetensors files -> plain numbers by name.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use half::bf16;
use safetensors::{Dtype, SafeTensors};

/// The environment variable that names the working tree, where tests run on another machine than
/// the one that built them.
const TREE: &str = "ESPALIER_TESTS_TREE";

/// The path of a file under `tests/golden`.
pub fn golden_path(name: &str) -> PathBuf {
    let tests = std::env::var_os(TREE).map(|tree| Path::new(&tree).join("tests"));
    let tests = tests.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).to_owned());
    tests.join("golden").join(name)
}

/// The bytes of `tests/golden/NAME`, decompressed where the name ends in `.gz`.
///
/// # Panics
/// If it is missing or damaged.
pub fn golden_bytes(name: &str) -> Vec<u8> {
    let path = golden_path(name);
    let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    if !name.ends_with(".gz") {
        return bytes;
    }
    let mut content = Vec::new();
    let read = GzDecoder::new(&bytes[..]).read_to_end(&mut content);
    read.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    content
}

/// A golden file in memory.
pub struct Golden(BTreeMap<String, (Vec<usize>, Vec<f64>)>);

impl Golden {
    /// Reads `tests/golden/NAME`, compressed where the name ends in `.gz`.
    ///
    /// # Panics
    /// If it is missing or not a safetensors file of f64, f32, bf16, i64, u8 or i8.
    pub fn open(name: &str) -> Self {
        Self::from_bytes(&golden_bytes(name))
    }

    /// Reads a safetensors file.
    ///
    /// # Panics
    /// As [`Golden::open`].
    pub fn read(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self::from_bytes(&bytes)
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let tensors = SafeTensors::deserialize(bytes).expect("a safetensors file");
        let numbers = |dtype: Dtype, data: &[u8]| -> Vec<f64> {
            match dtype {
                Dtype::F64 => data
                    .chunks_exact(8)
                    .map(|x| f64::from_le_bytes(x.try_into().expect("8 bytes")))
                    .collect(),
                Dtype::F32 => data
                    .chunks_exact(4)
                    .map(|x| f64::from(f32::from_le_bytes(x.try_into().expect("4 bytes"))))
                    .collect(),
                Dtype::BF16 => data
                    .chunks_exact(2)
                    .map(|x| bf16::from_le_bytes(x.try_into().expect("2 bytes")).to_f64())
                    .collect(),
                Dtype::I64 => data
                    .chunks_exact(8)
                    .map(|x| i64::from_le_bytes(x.try_into().expect("8 bytes")) as f64)
                    .collect(),
                Dtype::U8 => data.iter().map(|&x| f64::from(x)).collect(),
                Dtype::I8 => data.iter().map(|&x| f64::from(x as i8)).collect(),
                other => panic!("a golden tensor of {other:?}"),
            }
        };
        Golden(
            tensors
                .iter()
                .map(|(name, view)| {
                    let values = numbers(view.dtype(), view.data());
                    (name.to_owned(), (view.shape().to_vec(), values))
                })
                .collect(),
        )
    }

    /// The numbers of tensor `name`.
    ///
    /// # Panics
    /// If there is none.
    pub fn numbers(&self, name: &str) -> &[f64] {
        &self
            .0
            .get(name)
            .unwrap_or_else(|| panic!("no tensor `{name}`"))
            .1
    }

    /// The names of all tensors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Tensor `name`, `[.., n]`, as rows of integers.
    ///
    /// # Panics
    /// If there is none.
    pub fn rows(&self, name: &str) -> Vec<Vec<i32>> {
        let (shape, values) = self
            .0
            .get(name)
            .unwrap_or_else(|| panic!("no tensor `{name}`"));
        let width = *shape.last().expect("a shape");
        values
            .chunks(width)
            .map(|row| row.iter().map(|&x| x as i32).collect())
            .collect()
    }
}

/// The names of a file's tensors, sorted.
pub fn names(tensors: &SafeTensors<'_>) -> Vec<String> {
    let mut names: Vec<String> = tensors.names().into_iter().map(str::to_owned).collect();
    names.sort();
    names
}
