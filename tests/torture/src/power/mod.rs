//! A record of changes of files -> what a disk may hold after the power fails behind any of them.

mod data;
mod disk;
mod record;
mod state;
mod trace;

pub use data::Loss;
pub use disk::Disk;
pub use record::{Change, Kind, read};
pub use state::{State, digest, put};
pub use trace::{CALLS, recorded, traced};
