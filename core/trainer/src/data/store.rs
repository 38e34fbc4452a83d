//! Files -> all their rows in memory, tokenized side by side and kept in order.

use std::fmt;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde_json::{Map, Value};

use super::chat_template::{self, ChatTemplate};
use super::error::{DataError, Place};
use super::format::{self, Format};
use super::options::{DataOptions, TrainOn};
use super::reader::{RawRow, Reader};
use super::row::{self, Outcome, Row, RowRules, UNTRAINED};
use super::tokenizer::Vocabulary;

/// Rows and bytes that are read before their tokens are computed side by side.
const CHUNK_ROWS: usize = 2048;
const CHUNK_BYTES: usize = 8 << 20;

/// All that was read, in the order of the files.
#[derive(Default)]
pub(super) struct Store {
    pub tokens: Vec<i32>,
    pub labels: Vec<i32>,
    pub records: Vec<Record>,
    pub files: Vec<FileRecord>,
    pub counts: Counts,
}

/// One kept row.
#[derive(Clone, Copy)]
pub(super) struct Record {
    pub tokens: usize,
    /// Start of its labels; `usize::MAX` where every token is trained.
    pub labels: usize,
    pub length: u32,
    pub trained: u32,
    pub file: u32,
    pub line: u64,
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
    /// Tokens of the rows that stay.
    pub tokens: u64,
    /// Trained ones of them: those whose label is not [`UNTRAINED`] after the shift.
    pub trained_tokens: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.rows - self.too_long - self.untrained;
        write!(
            f,
            "{kept} sequences of {} rows, {} tokens",
            self.rows, self.tokens
        )?;
        let share = 100.0 * self.trained_tokens as f64 / (self.tokens.max(1)) as f64;
        write!(f, ", {} trained ({share:.1} %)", self.trained_tokens)?;
        for (count, what) in [
            (self.truncated, "cut to max_seq_len"),
            (self.too_long, "left out as too long"),
            (self.untrained, "left out without a trained token"),
        ] {
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
    /// Adds the rows of one file; returns its length in bytes.
    pub(super) fn read_file(
        &mut self,
        path: &Path,
        options: &DataOptions,
        vocabulary: &Vocabulary,
        report: &mut dyn FnMut(u64, u64),
    ) -> Result<u64, DataError> {
        let mut reader = Reader::open(path)?;
        let rows_before = self.counts.rows;
        let mut rules = None;
        loop {
            let (chunk, fault) = next_chunk(&mut reader);
            if rules.is_none() && !chunk.is_empty() {
                rules = Some(rules_of(&chunk[0], path, options, vocabulary)?);
            }
            if let Some(rules) = &rules {
                let outcomes: Vec<_> = chunk
                    .par_iter()
                    .map(|raw| {
                        let place = Place::new(path, raw.line);
                        rules.read(&row::parse(raw, &place)?, &place)
                    })
                    .collect();
                for (raw, outcome) in chunk.iter().zip(outcomes) {
                    self.add(outcome?, raw.line)?;
                }
            }
            // A fault behind the chunk waits until the rows before it are known to be sound.
            if let Some(fault) = fault {
                return Err(fault);
            }
            report(self.counts.rows, reader.bytes_read());
            if chunk.is_empty() {
                break;
            }
        }
        let Some(rules) = rules else {
            return Err(DataError::EmptyFile {
                path: path.to_path_buf(),
            });
        };
        let bytes = reader.bytes_read();
        self.files.push(FileRecord {
            path: path.to_path_buf(),
            bytes,
            sha256: reader.sha256()?,
            rows: self.counts.rows - rows_before,
            format: rules.format,
        });
        Ok(bytes)
    }

    pub(super) fn add(&mut self, outcome: Outcome, line: u64) -> Result<(), DataError> {
        self.counts.rows += 1;
        let Outcome::Kept(Row {
            tokens,
            labels,
            truncated,
        }) = outcome
        else {
            self.counts.too_long += 1;
            return Ok(());
        };
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
        if self.records.len() >= u32::MAX as usize {
            return Err(DataError::TooManyRows {
                expected: u64::from(u32::MAX),
                found: self.counts.rows,
            });
        }
        self.counts.truncated += u64::from(truncated);
        self.counts.tokens += tokens.len() as u64;
        self.counts.trained_tokens += trained as u64;
        self.records.push(Record {
            tokens: self.tokens.len(),
            labels: labels.as_ref().map_or(usize::MAX, |_| self.labels.len()),
            length: tokens.len() as u32, // max_seq_len fits an i32
            trained: trained as u32,
            file: self.files.len() as u32,
            line,
        });
        self.tokens.extend_from_slice(&tokens);
        self.labels
            .extend_from_slice(labels.as_deref().unwrap_or_default());
        Ok(())
    }
}

/// The next rows, and the fault that ended them early.
fn next_chunk(reader: &mut Reader) -> (Vec<RawRow>, Option<DataError>) {
    let (mut chunk, mut bytes) = (Vec::new(), 0);
    while chunk.len() < CHUNK_ROWS && bytes < CHUNK_BYTES {
        match reader.next_row() {
            Ok(Some(raw)) => {
                bytes += raw.bytes.len();
                chunk.push(raw);
            }
            Ok(None) => break,
            Err(fault) => return (chunk, Some(fault)),
        }
    }
    (chunk, None)
}

/// How a file's rows are read, told from its first row.
fn rules_of<'a>(
    first: &RawRow,
    path: &Path,
    options: &'a DataOptions,
    vocabulary: &'a Vocabulary,
) -> Result<RowRules<'a>, DataError> {
    let place = Place::new(path, first.line);
    let row = row::parse(first, &place)?;
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
