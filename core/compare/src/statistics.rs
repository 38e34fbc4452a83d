//! Held-out losses by document, seed and arm -> the significant differences between arms.

mod bootstrap;
mod difference;
mod family;
mod needed;
mod noise;
mod paired;
mod pool;
mod quantiles;
mod range;
#[cfg(test)]
mod simulation;
mod variance;

pub use bootstrap::{CONFIDENCE, DRAWS, Draws, FEWEST_SEEDS, Interval, Parts};
pub use difference::{Basis, Difference};
pub use family::{ComparedPair, Family};
pub use needed::Needed;
pub use noise::Noise;
pub use paired::{Paired, Unpaired};
pub use pool::{Pool, Spread};
pub use variance::Variance;
