//! Two trees of plain values -> the leaves that differ, each with both values.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value as Json;

/// The plain values of a tree by their dotted keys.
pub(super) type Leaves = BTreeMap<String, String>;

/// A key with an old and a new value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    part: Part,
    pub(super) key: String,
    old: String,
    new: String,
    /// Why it matters, where this is not obvious.
    pub(super) reason: Option<String>,
}

/// The part of `run.json` that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A key of the config.
    Config,
    /// Any other part: a plugin, a file, a hash derived from them.
    Other,
}

impl Difference {
    /// The old and the new value; null where it is unset.
    pub(super) fn values(&self) -> [Json; 2] {
        [&self.old, &self.new].map(|value| serde_json::from_str(value).unwrap_or_default())
    }

    /// Whether it is a key of the config.
    pub fn is_of_config(&self) -> bool {
        self.part == Part::Config
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.key, self.old, self.new)?;
        match &self.reason {
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        }
    }
}

/// The differences of the trees `old` and `new`.
pub fn tree_differences(old: &Json, new: &Json) -> Vec<Difference> {
    compare(&leaves(old), &leaves(new), Part::Config, "")
}

/// The plain values of a tree by their dotted keys; unset ones are left out.
pub fn leaves(value: &Json) -> BTreeMap<String, String> {
    fn collect(value: &Json, key: &str, leaves: &mut Leaves) {
        match value {
            Json::Object(entries) => {
                for (name, value) in entries {
                    let inner = match key {
                        "" => name.clone(),
                        _ => format!("{key}.{name}"),
                    };
                    collect(value, &inner, leaves);
                }
            }
            Json::Null => {}
            plain => drop(leaves.insert(key.to_owned(), plain.to_string())),
        }
    }
    let mut leaves = Leaves::new();
    collect(value, "", &mut leaves);
    leaves
}

/// The leaves of `old` and `new` that differ, with `prefix` before their keys.
pub(super) fn compare(old: &Leaves, new: &Leaves, part: Part, prefix: &str) -> Vec<Difference> {
    let shown = |value: Option<&String>| value.map_or("unset", String::as_str).to_owned();
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    keys.into_iter()
        .filter(|key| old.get(*key) != new.get(*key))
        .map(|key| Difference {
            part,
            key: format!("{prefix}{key}"),
            old: shown(old.get(key)),
            new: shown(new.get(key)),
            reason: None,
        })
        .collect()
}
