//! Files -> all their rows, tokenized side by side and kept in order, in memory or a temporary file.

use std::fmt;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde_json::{Map, Value};

use super::chat_template::{self, ChatTemplate};
use super::error::{DataError, Place};
use super::fault::Dropped;
use super::format::{self, Format};
use super::index::Index;
use super::numbers::Numbers;
use super::options::{DataOptions, OnBadRow, TrainOn};
use super::row::{Outcome, Row, RowRules, UNTRAINED};
use super::source::{Source, SourceRow};
use super::tokenizer::Vocabulary;

/// Rows and bytes that are read before their tokens are computed side by side.
const CHUNK_ROWS: usize = 2048;
const CHUNK_BYTES: usize = 8 << 20;

/// Numbers that stand before a row's tokens: how many are trained, how many there were before any
/// were cut off, the file, and the line in two halves.
const HEADER: usize = 5;

/// All that was read, in the order of the files.
pub(super) struct Store {
    numbers: Numbers,
    index: Index,
    pub files: Vec<FileRecord>,
    pub counts: Counts,
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
    pub line: u64,
    pub full_length: usize,
}

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FileRecord {
    /// As it was given.
    pub path: PathBuf,
    /// sha256 of its bytes, in hexadecimal.
    pub sha256: String,
    /// Its length.
    pub bytes: u64,
    /// Its rows, left-out ones included.
    pub rows: u64,
    /// What its fields mean.
    pub format: Format,
}

/// What became of the rows of all files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Rows in the files.
    pub rows: u64,
    /// Rows cut to `max_seq_len`.
    pub truncated: u64,
    /// Rows left out because they are longer than `max_seq_len`.
    pub too_long: u64,
    /// Rows left out because none of their tokens is trained.
    pub untrained: u64,
    /// Rows left out because they are bad.
    pub dropped: Dropped,
    /// Tokens of the rows that stay.
    pub tokens: u64,
    /// Trained ones of them: those whose label is not [`UNTRAINED`] after the shift.
    pub trained_tokens: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.rows - self.too_long - self.untrained - self.dropped.total();
        write!(
            f,
            "{kept} sequences of {} rows, {} tokens",
            self.rows, self.tokens
        )?;
        let share = 100.0 * self.trained_tokens as f64 / (self.tokens.max(1)) as f64;
        write!(f, ", {} trained ({share:.1} %)", self.trained_tokens)?;
        let expected = [
            (self.truncated, "cut to max_seq_len"),
            (self.too_long, "left out as too long"),
            (self.untrained, "left out without a trained token"),
        ];
        for (count, what) in expected.into_iter().chain(self.dropped.by_kind()) {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

/// How far reading has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The file in work.
    pub path: &'a Path,
    /// Rows read of all files so far.
    pub rows: u64,
    /// Bytes read of all files so far.
    pub bytes: u64,
    /// Bytes of all files.
    pub total_bytes: u64,
}

impl Store {
    /// An empty one; tokens that are many go to a file in `directory`.
    pub(super) fn new(directory: &Path) -> Self {
        Store {
            numbers: Numbers::new(directory),
            index: Index::default(),
            files: Vec::new(),
            counts: Counts::default(),
            first_fault: None,
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
        let mut source = Source::open(path, options)?;
        let rows_before = self.counts.rows;
        let mut rules = None;
        loop {
            let (mut chunk, fault) = next_chunk(&mut source);
            let ended = chunk.is_empty();
            while rules.is_none() && !chunk.is_empty() {
                match rules_of(&chunk[0], path, options, vocabulary) {
                    Ok(told) => rules = Some(told),
                    Err(fault) => {
                        self.leave_out(fault, options)?;
                        chunk.remove(0);
                    }
                }
            }
            if let Some(rules) = &rules {
                let outcomes: Vec<_> = chunk
                    .into_par_iter()
                    .map(|row| {
                        let line = row.line;
                        let place = Place::new(path, line);
                        let outcome = row.fields(&place);
                        (line, outcome.and_then(|row| rules.read(&row, &place)))
                    })
                    .collect();
                for (line, outcome) in outcomes {
                    match outcome {
                        Ok(outcome) => self.add(outcome, line)?,
                        Err(fault) => self.leave_out(fault, options)?,
                    }
                }
            }
            // A fault behind the chunk waits until the rows before it are known to be sound.
            if let Some(fault) = fault {
                return Err(fault);
            }
            report(self.counts.rows, source.bytes_read());
            if ended {
                break;
            }
        }
        let rows = self.counts.rows - rows_before;
        let format = match rules {
            Some(rules) => rules.format,
            None if rows > 0 => options.format,
            None => {
                return Err(DataError::EmptyFile {
                    path: path.to_path_buf(),
                });
            }
        };
        let (sha256, bytes) = source.finish(path)?;
        self.files.push(FileRecord {
            path: path.to_path_buf(),
            bytes,
            sha256,
            rows,
            format,
        });
        Ok(bytes)
    }

    /// Counts a bad row, or hands its fault back where bad rows are errors.
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

    pub(super) fn add(&mut self, outcome: Outcome, line: u64) -> Result<(), DataError> {
        self.counts.rows += 1;
        let Outcome::Kept(row) = outcome else {
            self.counts.too_long += 1;
            return Ok(());
        };
        let Row {
            tokens,
            labels,
            full_length,
        } = row;
        let trained = match &labels {
            Some(labels) => labels
                .iter()
                .skip(1)
                .filter(|&&label| label != UNTRAINED)
                .count(),
            None => tokens.len().saturating_sub(1),
        };
        if trained == 0 {
            self.counts.untrained += 1;
            return Ok(());
        }
        if self.index.len() >= u32::MAX as usize {
            return Err(DataError::TooManyRows {
                expected: u64::from(u32::MAX),
                found: self.counts.rows,
            });
        }
        self.counts.truncated += u64::from(full_length > tokens.len());
        self.counts.tokens += tokens.len() as u64;
        self.counts.trained_tokens += trained as u64;
        self.index.push(HEADER, tokens.len(), labels.is_some());
        // Lengths are those of rows held in memory, of at most 2^26 bytes: they fit.
        self.numbers.extend(&[
            trained as i32,
            full_length as i32,
            self.files.len() as i32,
            line as i32,
            (line >> 32) as i32,
        ])?;
        self.numbers.extend(&tokens)?;
        self.numbers.extend(labels.as_deref().unwrap_or_default())
    }

    /// Nothing more will be added.
    ///
    /// # Errors
    /// Where nothing is left to train on, or most rows were bad.
    pub(super) fn finish(&mut self) -> Result<(), DataError> {
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
    /// A temporary file that cannot be read.
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
        line: u64::from(header[3] as u32) | u64::from(header[4] as u32) << 32,
    }
}

/// The next rows, and the fault that ended them early.
fn next_chunk(source: &mut Source) -> (Vec<SourceRow>, Option<DataError>) {
    let (mut chunk, mut bytes) = (Vec::new(), 0);
    while chunk.len() < CHUNK_ROWS && bytes < CHUNK_BYTES {
        match source.next_row() {
            Ok(Some(row)) => {
                bytes += row.bytes();
                chunk.push(row);
            }
            Ok(None) => break,
            Err(fault) => return (chunk, Some(fault)),
        }
    }
    (chunk, None)
}

/// How a file's rows are read, told from its first row.
fn rules_of<'a>(
    first: &SourceRow,
    path: &Path,
    options: &'a DataOptions,
    vocabulary: &'a Vocabulary,
) -> Result<RowRules<'a>, DataError> {
    let place = Place::new(path, first.line);
    let row = first.peek(&place)?;
    let format = match options.format {
        Format::Auto => format::tell(&row, &options.fields, &place)?,
        chosen => chosen,
    };
    let labelled =
        format == Format::InputIds && row.contains_key(format::renamed(&options.fields, "labels"));
    let template = match has_turns(format, &row, options) {
        true => Some(open_template(path, options, vocabulary)?),
        false => None,
    };
    if options.train_on == TrainOn::Assistant && !labelled && template.is_none() {
        return Err(DataError::TrainOn {
            path: path.to_path_buf(),
            format,
        });
    }
    Ok(RowRules {
        options,
        format,
        tokenizer: match format {
            Format::InputIds => None,
            _ => Some(vocabulary.tokenizer()?),
        },
        template,
        vocab_size: vocabulary.size(),
    })
}

/// Whether the rows like `row` are turns, or become turns because a template is asked for.
fn has_turns(format: Format, row: &Map<String, Value>, options: &DataOptions) -> bool {
    let prompt = row.get(format::renamed(&options.fields, "prompt"));
    match format {
        Format::Auto | Format::Text | Format::InputIds => false,
        Format::Chat => true,
        Format::PromptCompletion if prompt.is_some_and(Value::is_array) => true,
        Format::Alpaca | Format::PromptCompletion => options.chat_template.is_some(),
    }
}

fn open_template(
    path: &Path,
    options: &DataOptions,
    vocabulary: &Vocabulary,
) -> Result<ChatTemplate, DataError> {
    let choice = options.chat_template.as_deref();
    let opened = ChatTemplate::open(vocabulary.directory(), choice)?;
    opened.ok_or_else(|| DataError::NoTemplate {
        path: path.to_path_buf(),
        known: chat_template::names(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of all kinds, kept in a store that holds at most `limit` numbers in memory.
    fn store(limit: usize) -> Store {
        let mut store = Store::new(&std::env::temp_dir());
        store.numbers = store.numbers.with_limit(limit);
        for row in 0..500 {
            let tokens: Vec<i32> = (0..2 + row % 30).collect();
            let labels = (row % 3 == 0).then(|| tokens.iter().map(|token| token - 1).collect());
            let outcome = Outcome::Kept(Row {
                full_length: tokens.len() + (row % 5) as usize,
                tokens,
                labels,
            });
            let line = 1 + row as u64 * 0x1_0000_0001;
            store.add(outcome, line).unwrap();
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
            assert_eq!(
                (origin.file, origin.line),
                (0, 1 + row as u64 * 0x1_0000_0001)
            );
            assert_eq!(origin.full_length, length + row % 5);
        }
    }
}
