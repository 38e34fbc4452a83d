//!

pub mod bytes;
pub mod config;
pub mod data;
pub mod error;
pub mod machine;
pub mod observer;
pub mod search;
pub mod stop;
