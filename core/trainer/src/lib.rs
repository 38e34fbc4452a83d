//! The host's trainer: a config and plugins -> a trained model.

mod calibration;
pub mod checkpoint;
pub mod conformance;
pub mod convert;
pub mod error;
pub mod evaluate;
pub mod export;
pub mod generate;
pub mod planner;
mod record;
pub mod recorded;
pub mod session;
pub mod swap;
mod tensor_copy;
pub mod train;
pub mod weights;

pub use error::{Error, Result};
pub use espalier_interface::abi::call_site;
pub use espalier_interface::bytes;
