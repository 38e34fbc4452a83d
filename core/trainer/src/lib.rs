//!

pub mod data;
