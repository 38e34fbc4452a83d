//! Random outcomes of comparisons, and whether a report agrees with its table.

mod checker;
mod lines;
mod outcome;

pub use checker::check;
pub use lines::Lines;
pub use outcome::outcome;
