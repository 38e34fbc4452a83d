//! The kept rows in file order -> each row's place among the numbers, in little more than 4 bytes
//! per row.

/// Rows between two rows whose place is stored.
const STRIDE: usize = 64;
/// The bit of a length that says that labels follow the tokens; lengths fit an i32.
const LABELLED: u32 = 1 << 31;

/// Lengths of all rows, and the places of some.
#[derive(Default)]
pub(super) struct Index {
    lengths: Vec<u32>,
    /// Place of every row whose number is a multiple of [`STRIDE`].
    places: Vec<u64>,
    next: u64,
}

/// One row's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Number of its first.
    pub start: u64,
    /// Tokens.
    pub length: usize,
    /// Whether as many labels follow.
    pub labelled: bool,
}

impl Index {
    /// Adds a row whose numbers begin where the last one's end: `header` numbers, then its tokens,
    /// then its labels where it has any.
    pub(super) fn push(&mut self, header: usize, length: usize, labelled: bool) {
        if self.lengths.len().is_multiple_of(STRIDE) {
            self.places.push(self.next);
        }
        self.lengths
            .push(length as u32 | if labelled { LABELLED } else { 0 });
        self.next += numbers(header, *self.lengths.last().expect("just pushed"));
    }

    /// Rows.
    pub(super) fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Tokens of row `index`.
    pub(super) fn length(&self, index: usize) -> usize {
        (self.lengths[index] & !LABELLED) as usize
    }

    /// The place of row `index`; `header` as in [`Index::push`].
    pub(super) fn entry(&self, header: usize, index: usize) -> Entry {
        let known = index / STRIDE;
        let between = &self.lengths[known * STRIDE..index];
        Entry {
            start: self.places[known] + between.iter().map(|&l| numbers(header, l)).sum::<u64>(),
            length: self.length(index),
            labelled: self.lengths[index] & LABELLED != 0,
        }
    }

    /// Frees spare capacity; no row may be added afterwards.
    pub(super) fn finish(&mut self) {
        self.lengths.shrink_to_fit();
        self.places.shrink_to_fit();
    }

    /// Bytes in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.lengths.capacity() * size_of::<u32>() + self.places.capacity() * size_of::<u64>()
    }
}

/// The count of numbers of a row with this stored length.
fn numbers(header: usize, length: u32) -> u64 {
    let tokens = u64::from(length & !LABELLED);
    header as u64 + tokens * if length & LABELLED != 0 { 2 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_from_lengths() {
        let mut index = Index::default();
        let rows: Vec<(usize, bool)> = (0..1000).map(|i| (i % 37, i % 3 == 0)).collect();
        for &(length, labelled) in &rows {
            index.push(5, length, labelled);
        }
        index.finish();
        assert_eq!(index.len(), 1000);
        let mut start = 0;
        for (number, &(length, labelled)) in rows.iter().enumerate() {
            let expected = Entry {
                start,
                length,
                labelled,
            };
            assert_eq!(index.entry(5, number), expected);
            assert_eq!(index.length(number), length);
            start += (5 + length * if labelled { 2 } else { 1 }) as u64;
        }
        assert!(index.memory_bytes() < 1000 * 5);
    }
}
