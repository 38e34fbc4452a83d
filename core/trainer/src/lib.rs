//! The machine behind the host: it turns a config and plugins into a trained model.

pub mod config;
pub mod data;
pub mod files;
pub mod library;
pub mod registry;
pub mod threads;
