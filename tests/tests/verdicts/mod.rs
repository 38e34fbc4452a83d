//! Random outcomes of comparisons, and whether what a report says of one is what its table holds.

mod checker;
mod lines;
mod outcome;

pub use checker::check;
pub use lines::Lines;
pub use outcome::outcome;
