//! Held-out losses by document, seed and arm -> which differences between arms are real.

mod bootstrap;
mod difference;
mod noise;
mod paired;
#[cfg(test)]
mod simulation;
mod variance;

pub use bootstrap::{CONFIDENCE, DRAWS, Draws, FEWEST_SEEDS, Interval};
pub use difference::{Basis, Difference};
pub use noise::Noise;
pub use paired::{Paired, Unpaired};
pub use variance::Variance;
