//! Files -> all their rows as they are trained, in order, in memory or a temporary file.

use std::path::Path;

use super::counts::Counts;
use super::error::{DataError, RowLocation, RowNumber};
use super::file_record::FileRecord;
use super::file_rows::{self, ReadFile};
use super::index::Index;
use super::numbers::Numbers;
use super::options::{DataOptions, OnBadRow};
use super::row::{self, Outcome, Row};
use super::special_tokens::SplitToken;
use super::tokenizer::Vocabulary;

/// Numbers before a row's tokens: trained tokens, tokens before the cut, the file, and the line in
/// two halves.
const HEADER: usize = 5;

/// All that was read, in the order of the files.
pub(super) struct Store {
    numbers: Numbers,
    index: Index,
    pub files: Vec<FileRecord>,
    pub counts: Counts,
    /// Special tokens that a template writes and the tokenizer splits.
    pub split: Vec<SplitToken>,
    /// How often the split tokens of the current file occur in its rows.
    split_counts: Vec<u64>,
    /// Whether rows are only counted, and not kept.
    counts_alone: bool,
    /// What is wrong with the first row that was left out.
    first_fault: Option<String>,
}

/// One kept row.
pub(super) struct Record {
    pub tokens: Vec<i32>,
    /// None where every token is trained.
    pub labels: Option<Vec<i32>>,
    pub trained: usize,
}

/// Where a row comes from.
pub(super) struct Origin {
    pub file: usize,
    pub number: RowNumber,
    pub full_length: usize,
}

/// The progress of reading.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The current file.
    pub path: &'a Path,
    /// Rows read of all files so far.
    pub rows: u64,
    /// Bytes read of all files so far.
    pub bytes: u64,
    /// Bytes of all files.
    pub total_bytes: u64,
}

impl Store {
    /// An empty store; tokens that exceed memory go to a file in `directory`.
    pub(super) fn new(directory: &Path) -> Self {
        Store {
            numbers: Numbers::new(directory),
            index: Index::default(),
            files: Vec::new(),
            counts: Counts::default(),
            split: Vec::new(),
            split_counts: Vec::new(),
            counts_alone: false,
            first_fault: None,
        }
    }

    /// An empty store that counts rows and keeps none.
    pub(super) fn counting() -> Self {
        Store {
            counts_alone: true,
            ..Store::new(Path::new("."))
        }
    }

    /// Adds the rows of one file; returns its length in bytes.
    pub(super) fn read_file(
        &mut self,
        path: &Path,
        options: &DataOptions,
        vocabulary: &Vocabulary,
        report: &mut dyn FnMut(u64, u64),
    ) -> Result<u64, DataError> {
        let rows_before = self.counts.rows;
        let mut told = |rows, bytes| report(rows_before + rows, bytes);
        let mut take = |number, row: Result<Row, DataError>| {
            let place = || RowLocation::new(path, number);
            match row.and_then(|row| row::cut(row, options, place)) {
                Ok(outcome) => self.add(outcome, number),
                Err(fault) => self.leave_out(fault, options),
            }
        };
        let file = file_rows::read(path, options, vocabulary, &mut take, &mut told)?;
        let bytes = file.record.bytes;
        self.end_file(file);
        Ok(bytes)
    }

    /// Records a file that could not be read to its end.
    pub(super) fn give_file_up(&mut self) {
        self.split_counts.clear();
    }

    /// Records a file whose rows were added.
    pub(super) fn end_file(&mut self, file: ReadFile) {
        self.files.push(file.record);
        let counts = std::mem::take(&mut self.split_counts);
        for (mut split, count) in file.split.into_iter().zip(counts) {
            split.count = count;
            match self.split.iter_mut().find(|one| one.is_as(&split)) {
                Some(one) => one.count += count,
                None => self.split.push(split),
            }
        }
    }

    /// Counts a bad row, or returns its fault where bad rows are errors.
    fn leave_out(&mut self, fault: DataError, options: &DataOptions) -> Result<(), DataError> {
        if options.on_bad_row == OnBadRow::Error {
            return Err(fault);
        }
        let text = fault.to_string();
        self.counts.dropped.add(fault)?;
        self.counts.rows += 1;
        self.first_fault.get_or_insert(text);
        Ok(())
    }

    pub(super) fn add(&mut self, outcome: Outcome, number: RowNumber) -> Result<(), DataError> {
        let counts = &mut self.counts;
        counts.rows += 1;
        let row = match outcome {
            Outcome::Kept(row) => row,
            Outcome::TooLong(row) => {
                counts.longest = counts.longest.max(row.full_length as u64);
                counts.too_long += 1;
                counts.lost.too_long += row.full_trained as u64;
                return Ok(());
            }
        };
        counts.longest = counts.longest.max(row.full_length as u64);
        let (trained, full_trained) = (row.trained(), row.full_trained);
        if trained == 0 {
            match full_trained {
                0 => counts.untrained += 1,
                _ => counts.prompt_fills += 1,
            }
            counts.lost.prompt_fills += full_trained as u64;
            return Ok(());
        }
        counts.lost.truncated += (full_trained - trained) as u64;
        let Row {
            tokens,
            labels,
            full_length,
            kind,
            ..
        } = row;
        if self.index.len() >= u32::MAX as usize {
            return Err(DataError::TooManyRows {
                expected: u64::from(u32::MAX),
                found: self.counts.rows,
            });
        }
        self.counts.truncated += u64::from(full_length > tokens.len());
        self.counts.tokens += tokens.len() as u64;
        self.counts.trained_tokens += trained as u64;
        let whole = labels.is_none();
        self.counts
            .trains
            .add(kind.format, kind.train_on, kind.answers, whole);
        let split = kind.split.len().max(self.split_counts.len());
        self.split_counts.resize(split, 0);
        for (sum, count) in self.split_counts.iter_mut().zip(&kind.split) {
            *sum += u64::from(*count);
        }
        if self.counts_alone {
            return Ok(());
        }
        self.index.push(HEADER, tokens.len(), labels.is_some());
        // Lengths are those of rows held in memory, of at most 2^26 bytes: they fit.
        let place = number.to_bits();
        self.numbers.extend(&[
            trained as i32,
            full_length as i32,
            self.files.len() as i32,
            place as i32,
            (place >> 32) as i32,
        ])?;
        self.numbers.extend(&tokens)?;
        self.numbers.extend(labels.as_deref().unwrap_or_default())
    }

    /// Writes what is buffered and checks the counts; nothing may be added afterwards.
    ///
    /// # Errors
    /// [`DataError::NothingTrained`], [`DataError::MostDropped`] and [`DataError::Cache`].
    pub(super) fn finish(&mut self) -> Result<(), DataError> {
        self.counts.finish();
        let counts = self.counts;
        let dropped = counts.dropped.total();
        if let Some(first) = self.first_fault.take()
            && 2 * dropped > counts.rows
        {
            return Err(DataError::MostDropped {
                dropped,
                rows: counts.rows,
                first,
            });
        }
        if self.index.len() == 0 {
            return Err(DataError::NothingTrained {
                rows: counts.rows,
                untrained: counts.untrained,
                prompt_fills: counts.prompt_fills,
                too_long: counts.too_long,
                dropped,
            });
        }
        self.index.finish();
        self.numbers.finish()
    }

    /// Rows that are kept.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Tokens of the kept row `index`.
    pub(super) fn length(&self, index: usize) -> usize {
        self.index.length(index)
    }

    /// The kept row `index`.
    ///
    /// # Errors
    /// [`DataError::Cache`] for a temporary file that cannot be read.
    pub(super) fn record(&self, index: usize) -> Result<Record, DataError> {
        let entry = self.index.entry(HEADER, index);
        let parts = if entry.labelled { 2 } else { 1 };
        let count = HEADER + parts * entry.length;
        let mut tokens = self.numbers.read(entry.start, count)?;
        let labels = tokens.split_off(HEADER + entry.length);
        let header: Vec<i32> = tokens.drain(..HEADER).collect();
        Ok(Record {
            tokens,
            labels: entry.labelled.then_some(labels),
            trained: header[0] as usize,
        })
    }

    /// Where the kept row `index` comes from.
    ///
    /// # Errors
    /// As [`Store::record`].
    pub(super) fn origin(&self, index: usize) -> Result<Origin, DataError> {
        let start = self.index.entry(HEADER, index).start;
        Ok(origin(&self.numbers.read(start, HEADER)?))
    }

    /// Bytes in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.numbers.memory_bytes() + self.index.memory_bytes()
    }

    /// Bytes in the temporary file.
    pub(super) fn file_bytes(&self) -> u64 {
        self.numbers.file_bytes()
    }
}

fn origin(header: &[i32]) -> Origin {
    Origin {
        full_length: header[1] as usize,
        file: header[2] as usize,
        number: RowNumber::stored(u64::from(header[3] as u32) | u64::from(header[4] as u32) << 32),
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::Kind;
    use super::*;

    fn number(row: u64) -> RowNumber {
        let number = 1 + row * 0x1_0000_0001;
        match row % 2 {
            0 => RowNumber::Line(number),
            _ => RowNumber::Row(number),
        }
    }

    /// Rows of all kinds, kept in a store that holds at most `limit` numbers in memory.
    fn store(limit: usize) -> Store {
        let mut store = Store::new(&std::env::temp_dir());
        store.numbers = store.numbers.with_limit(limit);
        for row in 0..500 {
            let tokens: Vec<i32> = (0..2 + row % 30).collect();
            let labels = (row % 3 == 0).then(|| tokens.iter().map(|token| token - 1).collect());
            let outcome = Outcome::Kept(Row {
                full_length: tokens.len() + (row % 5) as usize,
                ..Row::new(tokens, labels, Kind::default())
            });
            store.add(outcome, number(row as u64)).unwrap();
        }
        store.finish().unwrap();
        store
    }

    #[test]
    fn rows_come_back_alike_from_memory_and_from_the_file() {
        let (held, filed) = (store(usize::MAX), store(0));
        assert_eq!((held.len(), held.file_bytes()), (500, 0));
        assert!(filed.file_bytes() > 0 && filed.memory_bytes() < held.memory_bytes() / 4);
        for row in (0..500).rev() {
            let (a, b) = (held.record(row).unwrap(), filed.record(row).unwrap());
            let length = 2 + row % 30;
            assert_eq!((a.tokens.len(), held.length(row)), (length, length));
            assert_eq!(
                (&a.tokens, &a.labels, a.trained),
                (&b.tokens, &b.labels, b.trained)
            );
            assert_eq!(a.labels.is_some(), row % 3 == 0);
            let origin = filed.origin(row).unwrap();
            assert_eq!((origin.file, origin.number), (0, number(row as u64)));
            assert_eq!(origin.full_length, length + row % 5);
        }
    }
}
