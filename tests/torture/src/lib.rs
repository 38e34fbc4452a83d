//! Attacks on the program: runs and their processes, the faults, and the suite that counts survived
//! tries.

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

// Its library is preloaded: naming it here makes Cargo build it.
use espalier_faults as _;
