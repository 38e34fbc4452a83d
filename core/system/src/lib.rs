//! Interfaces to the machine: atomic files, memory, threads, signals, ranks.

pub mod failure;
pub mod files;
pub mod machine;
pub mod memory;
pub mod notice;
pub mod number;
pub mod shell;
pub mod signal;
pub mod stop;
pub mod threads;
pub mod world;
