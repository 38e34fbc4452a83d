//! Several arms on the same batches in one run, and what their numbers say.

pub mod base;
mod divergence;
pub mod documents;
pub mod record;
pub mod report;
pub mod statistics;
pub mod weights;
pub mod yardstick;
