//! The values of codes, as `kernels/cuda/linear/tables.cuh` has them.

use std::sync::Arc;

use espalier_interface::Result;

use crate::kit::Kit;
use crate::tables::DeviceTable;

/// Tables of a format, the words of its codes that are split, and the rows of those that have rows.
#[derive(Clone, Default)]
pub struct CodeTables {
    words: Vec<u64>,
    values: Vec<f32>,
    /// Whether values are read 16 bytes at a time, so that they begin at such a multiple.
    has_vectors: bool,
}

/// Tables as a kernel takes them, in the card's memory.
#[derive(Clone)]
pub struct GivenTables {
    memory: Arc<DeviceTable>,
    shared_bytes: u32,
}

impl CodeTables {
    /// Adds a table. Returns the index of its first value.
    pub fn add(&mut self, table: &[f32]) -> usize {
        self.values.extend_from_slice(table);
        self.values.len() - table.len()
    }

    /// Adds a codebook of vectors, of which many lanes are read at once: it begins at a multiple of
    /// 16 bytes. Returns the index of its first value.
    pub fn add_vectors(&mut self, codebook: &[f32]) -> usize {
        self.has_vectors = true;
        self.values
            .resize(self.values.len().next_multiple_of(4), 0.0);
        self.add(codebook)
    }

    /// Adds the words of split codes, or a number of rows. Returns its index.
    pub fn add_words(&mut self, words: u64) -> usize {
        self.words.push(words);
        self.words.len() - 1
    }

    /// What a kernel's source has before it.
    pub fn definitions(&self) -> String {
        let (words, values) = (self.num_words(), self.num_values());
        format!("#define TABLE_WORDS {words}\n#define TABLE_VALUES {values}\n")
    }

    /// The tables as a kernel takes them.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`, `DEVICE`.
    pub fn given(&self, kit: &Kit) -> Result<GivenTables> {
        let words = self.packed();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Ok(GivenTables {
            memory: kit.modules.table(&bytes)?,
            shared_bytes: self.bytes() as u32,
        })
    }

    /// Where values are read 16 bytes at a time, an even number.
    fn num_words(&self) -> usize {
        let count = self.words.len().max(1);
        count.next_multiple_of(if self.has_vectors { 2 } else { 1 })
    }

    /// An even number, so that they are whole words.
    fn num_values(&self) -> usize {
        self.values.len().next_multiple_of(2).max(2)
    }

    fn bytes(&self) -> usize {
        8 * self.num_words() + 4 * self.num_values()
    }

    /// Words, then values, two in a word.
    fn packed(&self) -> Vec<u64> {
        let mut packed = self.words.clone();
        packed.resize(self.num_words(), 0);
        let mut values = self.values.clone();
        values.resize(self.num_values(), 0.0);
        let pairs = values.as_chunks::<2>().0.iter();
        packed.extend(
            pairs.map(|[low, high]| {
                u64::from(low.to_bits()) | u64::from(high.to_bits()) << u32::BITS
            }),
        );
        packed
    }
}

impl GivenTables {
    /// Their address, as kernels take it.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Shared memory that a kernel has for its own copy.
    pub fn shared_bytes(&self) -> u32 {
        self.shared_bytes
    }
}
