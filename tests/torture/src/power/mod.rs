//! A record of changes of files -> possible contents of a disk after a power cut at any of them.

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
