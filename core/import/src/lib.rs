//! Configs of other trainers -> this program's, and what of them has no counterpart here.
//!
//! Nothing is dropped without a word: each key of a file is set here, listed as needless, or listed
//! as without a counterpart.

mod adapter;
mod data;
mod error;
mod imported;
mod known;
mod optim;
mod run;
mod source;

pub use error::ImportError;
pub use imported::{Imported, Remark};

use imported::Making;
use source::Source;

/// The config of a file of axolotl, or of TRL's scripts, in YAML.
///
/// # Errors
/// [`ImportError`] for a text that is not YAML, a value of the wrong kind, and a config of models
/// that this program cannot train.
pub fn import(text: &str) -> Result<Imported, ImportError> {
    let mut source = Source::read(text)?;
    known::refuse(&source)?;
    let mut making = Making::default();
    adapter::set(&mut source, &mut making)?;
    data::set(&mut source, &mut making)?;
    optim::set(&mut source, &mut making)?;
    run::set(&mut source, &mut making)?;
    known::remark(&mut source, &mut making);
    Ok(making.done())
}

#[cfg(test)]
mod tests;
