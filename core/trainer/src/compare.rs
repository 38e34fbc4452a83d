//! Several arms on the same batches in one run, and what their numbers say.

pub mod record;
pub mod statistics;
