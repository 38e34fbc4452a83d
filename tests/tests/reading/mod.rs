//! Random outcomes of runs, and whether what a report says of one is what its files hold.

mod checker;
mod claim;
mod outcome;
mod words;

pub use checker::check;
pub use outcome::Outcome;
