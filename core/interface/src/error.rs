//! Errors that plugins report: a code and a message.

use serde::{Deserialize, Serialize};

/// The kind of a failure: an id from a small set that may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(transparent)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// An option, a shape or a file's content is not valid; the user can change it.
    pub const INVALID: ErrorCode = ErrorCode(1);
    /// The plugin does not offer this op, dtype or method.
    pub const UNSUPPORTED: ErrorCode = ErrorCode(2);
    /// Not enough memory; the message says how many bytes were asked for.
    pub const OUT_OF_MEMORY: ErrorCode = ErrorCode(3);
    /// The host asked to stop.
    pub const CANCELLED: ErrorCode = ErrorCode(4);
    /// A number is not finite where it must be.
    pub const NOT_FINITE: ErrorCode = ErrorCode(5);
    /// The plugin panicked; the panic was caught inside the plugin.
    pub const PANIC: ErrorCode = ErrorCode(6);
    /// A device or a library below the plugin failed.
    pub const DEVICE: ErrorCode = ErrorCode(7);
    /// The two sides of the boundary disagree about data that crossed it.
    pub const PROTOCOL: ErrorCode = ErrorCode(8);
    /// A collective call failed or was aborted: a peer ended, hangs, or made another call.
    pub const PEER: ErrorCode = ErrorCode(9);
}

/// A failure inside a plugin: a code for programs and a message for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PluginError {
    /// The kind of the failure.
    pub code: ErrorCode,
    /// What was expected, what was found and what to do; lower case, no full stop.
    pub message: String,
}

impl PluginError {
    /// A failure of kind `code`.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        PluginError {
            code,
            message: message.into(),
        }
    }

    /// A failure with code `INVALID`: something the user can change.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::INVALID, message)
    }

    /// A failure with code `UNSUPPORTED`: something this plugin does not offer.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::UNSUPPORTED, message)
    }
}

/// The result of a plugin's call.
pub type Result<T> = std::result::Result<T, PluginError>;
