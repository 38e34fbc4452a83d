//!
pub mod config;
