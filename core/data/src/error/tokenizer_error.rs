//! A model's tokenizer that is missing, unusable or of another model.

use std::path::PathBuf;

/// A tokenizer that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The model directory has no tokenizer.
    #[error(
        "{} does not exist; text rows need the model's tokenizer: put it there or use \
         pre-tokenized rows",
        path.display()
    )]
    Missing {
        /// The path of `tokenizer.json`.
        path: PathBuf,
    },
    /// A tokenizer file that cannot be used.
    #[error(
        "{} is not a usable tokenizer: {reason}; fetch the model's directory again",
        path.display()
    )]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The tokenizer's ids do not fit into the model's embedding.
    #[error(
        "{} does not match the model: token `{token}` has id {id}; the model's vocab_size is \
         {vocab_size}",
        path.display()
    )]
    Mismatch {
        /// The path of `tokenizer.json`.
        path: PathBuf,
        /// The token with the highest id.
        token: String,
        /// Its id.
        id: u32,
        /// Rows of the model's embedding.
        vocab_size: usize,
    },
    /// No file of the model's directory names the end token.
    #[error(
        "{} names no end token; set eos_token in tokenizer_config.json or eos_token_id in \
         config.json",
        directory.display()
    )]
    NoEndToken {
        /// The model's directory.
        directory: PathBuf,
    },
}
