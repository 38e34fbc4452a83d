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

    /// The op that `text` names: `NAME` for version 1, else `NAME.VERSION`.
    pub fn named(text: &str) -> Self {
        let parts = text.rsplit_once('.');
        let parts = parts.and_then(|(name, version)| Some((name, version.parse().ok()?)));
        let (name, version) = parts.unwrap_or((text, 1));
        OpId {
            name: name.to_owned(),
            version,
        }
    }
}

impl std::fmt::Display for OpId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.version {
            1 => f.write_str(&self.name),
            version => write!(f, "{}.{version}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_and_without_a_version_are_read_as_they_are_written() {
        for (text, name, version) in [("add", "add", 1), ("a.b", "a.b", 1), ("add.2", "add", 2)] {
            let op = OpId::named(text);
            assert_eq!((op.name.as_str(), op.version), (name, version));
            assert_eq!(op.to_string(), text);
        }
    }
}
