//! The machine behind the host: it turns a config and plugins into a trained model.

mod arena;
pub mod bytes;
pub mod checkpoint;
pub mod config;
pub mod data;
mod decoder;
pub mod devices;
pub mod error;
pub mod evaluate;
pub mod executor;
pub mod export;
pub mod files;
pub mod grad;
pub mod library;
pub mod load;
pub mod machine;
pub mod measure;
pub mod memory;
pub mod observer;
pub mod optim;
pub mod params;
pub mod plan;
pub mod program;
mod recompute;
mod record;
pub mod registry;
pub mod search;
pub mod sections;
pub mod select;
pub mod session;
pub mod splice;
pub mod step;
pub mod stop;
pub mod threads;
pub mod train;

pub use error::{Error, Result};
