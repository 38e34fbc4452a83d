//! The name and version of an op, as a backend lists those that it has.

use serde::{Deserialize, Serialize};

/// An op by name and version.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OpId {
    /// Name.
    pub name: String,
    /// Version.
    pub version: u32,
}

impl OpId {
    /// Version 1 of the op `name`.
    pub fn first(name: &str) -> Self {
        OpId {
            name: name.to_owned(),
            version: 1,
        }
    }
}
