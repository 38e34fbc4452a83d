//! The contract between the host and its plugins: plain traits and data, and the frozen ABI that
//! carries them.
#![deny(missing_docs)]

pub mod abi;
pub mod adaptation;
pub mod bytes;
pub mod calibration;
mod declaration;
mod declare;
mod dtype;
pub mod dynamic_map;
mod error;
pub mod format;
pub mod graph;
mod init;
pub mod model;
pub mod op;
pub mod optimizer;
mod options;
mod pieces;
pub mod random;
pub mod range;
mod role;
pub mod saved_form;
pub mod schedule;
pub mod search;
mod services;
pub mod small_float;
pub mod stochastic;

pub use declaration::{Component, Create, Declaration, Instance};
pub use declare::{Linked, linked};
pub use dtype::DType;
pub use error::{ErrorCode, PluginError, Result};
pub use init::Init;
pub use options::{OptionKind, OptionSpec, Options};
pub use pieces::{f32_workspace, f32_workspace_bytes, in_pieces};
pub use role::*;
pub use services::{LogLevel, Serial, Services};

#[doc(hidden)]
pub use inventory;
