//! Files of rows -> tokens and labels -> the micro-batches of every step of a run.
//!
//! `reader` cuts a file into raw rows, `format` tells what their fields mean, `row` turns one into
//! token ids (`tokenizer`), `store` and `dataset` hold them, `order` sorts an epoch, `pack` fills
//! micro-batches and `schedule` yields step `k` of the run directly. Nothing here knows of ranks or
//! devices: the world size never changes the order of rows, the batches or their labels.
//!
//! Legend: `T` packed tokens of a micro-batch, `S` its sequences.

mod chat_template;
mod conversation;
mod dataset;
mod error;
mod fault;
mod format;
mod index;
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
mod schedule;
mod source;
mod store;
mod tokenizer;
mod turns;

pub use chat_template::{ChatTemplate, Message};
pub use dataset::{Dataset, Sequence, SequenceOrigin};
pub use error::{DataError, Place};
pub use fault::Dropped;
pub use format::Format;
pub use options::{DataOptions, OnBadRow, TooLong, TrainOn};
pub use pack::MicroBatch;
pub use preview::{Preview, ShownToken};
pub use row::UNTRAINED;
pub use schedule::{Extent, Horizon, Schedule, Step};
pub use store::{Counts, FileRecord, Progress};
pub use tokenizer::{TextTokenizer, Vocabulary};
