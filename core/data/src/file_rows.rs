//! A data file -> its rows in order, tokenized in parallel, each with its place or its fault.

use std::path::Path;

use rayon::prelude::*;
use serde_json::{Map, Value};

use super::chat_template::{self, ChatTemplate};
use super::conversation::Example;
use super::error::{DataError, RowLocation, RowNumber, TemplateError};
use super::fields;
use super::file_record::FileRecord;
use super::format::Format;
use super::options::{DataOptions, TrainOn};
use super::row::Row;
use super::row_rules::RowRules;
use super::source::{Source, SourceRow};
use super::special_tokens::{self, SplitToken};
use super::tokenizer::Vocabulary;

/// Rows and bytes of a chunk, which is read and then tokenized in parallel.
const CHUNK_ROWS: usize = 2048;
const CHUNK_BYTES: usize = 8 << 20;

/// A file that was read, with the special tokens that its template writes and the tokenizer splits.
pub(super) struct ReadFile {
    pub record: FileRecord,
    pub split: Vec<SplitToken>,
}

/// Passes every row of the file at `path` to `take` with its place: the uncut row or its fault.
/// `report` receives the rows and bytes so far.
///
/// # Errors
/// Faults of the file itself. An error of `take` ends reading.
pub(super) fn read(
    path: &Path,
    options: &DataOptions,
    vocabulary: &Vocabulary,
    take: &mut dyn FnMut(RowNumber, Result<Row, DataError>) -> Result<(), DataError>,
    report: &mut dyn FnMut(u64, u64),
) -> Result<ReadFile, DataError> {
    let mut source = Source::open(path, options)?;
    let mut rules = None;
    let mut rows = 0;
    loop {
        let (mut chunk, fault) = next_chunk(&mut source);
        let ended = chunk.is_empty();
        rows += chunk.len() as u64;
        while rules.is_none() && !chunk.is_empty() {
            match rules_of(&chunk[0], path, options, vocabulary) {
                Ok(told) => rules = Some(told),
                Err(fault) => {
                    take(chunk[0].number, Err(fault))?;
                    chunk.remove(0);
                }
            }
        }
        if let Some(rules) = &rules {
            let read: Vec<_> = chunk
                .into_par_iter()
                .map(|row| {
                    let number = row.number;
                    let place = RowLocation::new(path, number);
                    let fields = row.fields(&place);
                    (number, fields.and_then(|row| rules.read(&row, &place)))
                })
                .collect();
            for (number, row) in read {
                take(number, row)?;
            }
        }
        // A fault after the chunk is reported only after the rows before it.
        if let Some(fault) = fault {
            return Err(fault);
        }
        report(rows, source.bytes_read());
        if ended {
            break;
        }
    }
    if rows == 0 {
        let path = path.to_path_buf();
        return Err(DataError::EmptyFile { path });
    }
    let format = rules.as_ref().map_or(options.format, |rules| rules.format);
    let (sha256, bytes) = source.finish(path)?;
    Ok(ReadFile {
        record: FileRecord {
            path: path.to_path_buf(),
            bytes,
            sha256,
            rows,
            format,
            train_on: options.train_on.of(format),
        },
        split: rules.map_or_else(Vec::new, |rules| rules.split),
    })
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

/// The rules for a file's rows, from its first row.
fn rules_of<'a>(
    first: &SourceRow,
    path: &Path,
    options: &'a DataOptions,
    vocabulary: &'a Vocabulary,
) -> Result<RowRules<'a>, DataError> {
    let place = RowLocation::new(path, first.number);
    let row = first.peek(&place)?;
    let format = match options.format {
        Format::Auto => fields::tell(&row, &options.fields, &place)?,
        chosen => chosen,
    };
    let labelled =
        format == Format::InputIds && row.contains_key(fields::renamed(&options.fields, "labels"));
    let template = if has_turns(format, &row, options) {
        Some(open_template(path, options, vocabulary)?)
    } else {
        None
    };
    if options.train_on == TrainOn::Assistant && !labelled && template.is_none() {
        return Err(DataError::TrainOn {
            path: path.to_path_buf(),
            format,
        });
    }
    let mut rules = RowRules {
        options,
        format,
        tokenizer: match format {
            Format::InputIds => None,
            _ => Some(vocabulary.tokenizer()?),
        },
        template,
        split: Vec::new(),
        vocab_size: vocabulary.size(),
    };
    if let (Some(template), Some(tokenizer)) = (&rules.template, rules.tokenizer)
        && let Ok(Example::Turns { messages, .. }) = rules.fields(&row, &place)
    {
        rules.split = special_tokens::split(template, tokenizer, &messages);
    }
    Ok(rules)
}

/// Whether rows like `row` have turns, or become turns because a template is set.
fn has_turns(format: Format, row: &Map<String, Value>, options: &DataOptions) -> bool {
    let prompt = row.get(fields::renamed(&options.fields, "prompt"));
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
    opened.ok_or_else(|| {
        TemplateError::Missing {
            path: path.to_path_buf(),
            known: chat_template::names(),
        }
        .into()
    })
}
