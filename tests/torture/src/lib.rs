//! Attacks on the program: runs and their victims, what is done to them, and the suite that counts
//! what survives.

pub mod attacks;
pub mod built;
pub mod ended;
pub mod mutation;
pub mod power;
pub mod random;
pub mod scenario;
pub mod suite;
pub mod training;
pub mod victims;

// Its library is preloaded: cargo builds it because it is named here.
use espalier_faults as _;
