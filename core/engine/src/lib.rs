//! A planned run on its devices: ranks, weights in their places, and the steps.

pub mod calibrate;
pub mod call_watch;
pub mod decoder;
pub mod device_graph;
pub mod document_loss;
pub mod encoded;
pub mod error;
pub mod exact_match;
pub mod executor;
pub mod gather;
mod kernel_cache;
pub mod last_word;
pub mod load;
pub mod measure;
pub mod not_finite;
pub mod observer;
pub mod optim;
pub mod ranks;
pub mod sample_answer;
pub mod step;
pub mod team;

pub use error::{Error, Result};
