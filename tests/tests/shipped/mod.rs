//! The shipped plugins as libraries, and their answers.

mod answers;
mod libraries;

#[cfg(feature = "embedded")]
pub use answers::answers;
pub use answers::{SERVICES, options, request};
pub use libraries::{folder, loaded, of_another_abi, ours, put, search, shipped};
