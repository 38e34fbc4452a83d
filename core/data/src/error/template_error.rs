//! A chat template that is missing, unusable or beyond its bounds.

use std::path::PathBuf;

/// A chat template that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// A text that is not a chat template.
    #[error(
        "the chat template {origin} cannot be used: {reason}; correct it or choose another with data.chat_template"
    )]
    Unusable {
        /// Its name or file.
        origin: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A chat template refuses a conversation.
    #[error("the chat template {origin} raised: {reason}")]
    Raised {
        /// Its name or file.
        origin: String,
        /// Its message.
        reason: String,
    },
    /// An untrusted chat template exceeded a bound.
    #[error(
        "{row}the chat template {origin} {met}: correct it or choose another with data.chat_template"
    )]
    Bound {
        /// The row's place with `: `; empty where there is no row.
        row: String,
        /// Its name or file.
        origin: String,
        /// The bound with its value, and the line of the template.
        met: String,
    },
    /// Rows with turns, and no template to write them with.
    #[error("{} has conversations, and the model has no chat template; set data.chat_template to one of {known}, or to a file", path.display())]
    Missing {
        /// The data file.
        path: PathBuf,
        /// The shipped templates.
        known: String,
    },
}
