//! The contract between the host and its plugins: plain traits and data on one side, a frozen ABI on the other.
#![deny(missing_docs)]

mod dtype;
mod error;
pub mod random;
mod services;

pub use dtype::DType;
pub use error::{ErrorCode, PluginError, Result};
pub use services::{LogLevel, Serial, Services};
