//! A record of changes of files -> what a disk may hold after the power fails behind any of them.

mod disk;
mod record;
mod trace;

pub use disk::{Disk, Loss, State, digest, put};
pub use record::{Change, Kind, read};
pub use trace::{CALLS, recorded, traced};
