//! Files of rows -> tokens and labels -> the micro-batches of every step of a run.
//!
//! `reader` cuts a file into raw rows, `format` names the meaning of their fields, and `row_rules`
//! turns a row into token ids (`tokenizer`). `file_rows` does so for a file. `store` and `dataset`
//! hold the rows, and `counts` their outcomes. `order` sorts an epoch, `pack` fills micro-batches,
//! and `schedule` computes step `k` of the run directly. Nothing here depends on ranks or devices:
//! the world size never changes the order of rows, the batches or their labels.
//!
//! Notation: `T` packed tokens of a micro-batch, `S` its sequences.

mod chat_template;
pub mod checkup;
mod conversation;
mod counts;
mod dataset;
mod error;
mod fault;
mod fields;
mod file_record;
mod file_rows;
mod format;
mod index;
mod limit;
mod named_files;
mod numbers;
mod options;
mod order;
mod pack;
mod panics;
mod parquet;
mod preview;
mod reader;
mod row;
mod row_rules;
mod schedule;
mod source;
mod special_tokens;
mod store;
mod tokenizer;
mod tools;
mod turns;

pub use chat_template::{
    ChatTemplate, GenerationPrompt, Message, render_templates_with, serve_templates,
};
pub use counts::{Counts, Lost, Reason, Trains, grouped, percent};
pub use dataset::{Dataset, Sequence, SequenceOrigin};
pub use error::{
    DataError, RowError, RowFault, RowLocation, RowNumber, TemplateError, TokenizerError,
};
pub use fault::Dropped;
pub use file_record::FileRecord;
pub use format::Format;
pub use limit::{TOLD_LOST, TooLongIs};
pub use options::{DataOptions, OPTIONS_SOURCE, OnBadRow, OnEmpty, TooLong, Tools, TrainOn};
pub use pack::MicroBatch;
pub use preview::{Preview, ShownToken};
pub use row::UNTRAINED;
pub use schedule::{BatchSchedule, Extent, Horizon, StepBatch};
pub use special_tokens::{SplitToken, describe as describe_split_tokens};
pub use store::Progress;
pub use tokenizer::{TextTokenizer, Vocabulary};
