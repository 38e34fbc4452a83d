//! One file per command: its calls and its output.

pub mod cache;
pub mod compare;
pub mod config;
pub mod data;
pub mod doctor;
pub mod eval;
pub mod expand;
pub mod generate;
pub mod import;
pub mod merge;
pub mod plan;
pub mod plugins;
pub mod quantize;
pub mod report;
pub mod shell;
pub mod split;
pub mod swap;
pub mod train;
