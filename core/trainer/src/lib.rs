//!

pub mod data;
//! The machine behind the host: it turns a config and plugins into a trained model.

pub mod files;
pub mod config;
