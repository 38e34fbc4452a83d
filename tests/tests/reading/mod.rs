//! Random outcomes of runs, and whether a report agrees with the run's files.

mod checker;
mod claim;
mod outcome;
mod words;

pub use checker::check;
pub use outcome::Outcome;
