//! Small JSON files -> values. The size is bounded, and a duplicate name is an error.

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error, MapAccess, Visitor};

use super::regular_file::read_regular;
use super::{FileError, FileKind};

/// The JSON in `path`.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path, kind: FileKind) -> Result<T, FileError> {
    let text = read_regular(path, kind).map_err(|error| error.of(path))?;
    serde_json::from_slice(&text).map_err(|source| FileError::Json {
        path: path.to_owned(),
        source,
    })
}

/// The JSON object in `path`, a file of `kind`.
///
/// # Errors
/// [`FileError::Read`], [`FileError::TooLarge`] or [`FileError::Json`].
pub fn read_object(path: &Path, kind: FileKind) -> Result<serde_json::Value, FileError> {
    let value: serde_json::Value = read_json(path, kind)?;
    if value.is_object() {
        return Ok(value);
    }
    let source = serde_json::Error::custom("expected an object `{...}` at the top");
    Err(FileError::Json {
        path: path.to_owned(),
        source,
    })
}

/// A JSON object in file order, without duplicate names.
pub(super) struct UniqueMap<V>(pub Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for UniqueMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(UniqueVisitor(PhantomData))
    }
}

struct UniqueVisitor<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for UniqueVisitor<V> {
    type Value = UniqueMap<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object without repeated names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut seen = HashSet::new();
        let mut entries = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, V>()? {
            if !seen.insert(name.clone()) {
                return Err(A::Error::custom(format!("{name:?} occurs twice")));
            }
            entries.push((name, value));
        }
        Ok(UniqueMap(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_name_is_refused_and_order_is_kept() {
        let kept: UniqueMap<u8> = serde_json::from_str(r#"{"b": 1, "a": 2}"#).unwrap();
        assert_eq!(kept.0, [("b".to_owned(), 1), ("a".to_owned(), 2)]);
        let twice = serde_json::from_str::<UniqueMap<u8>>(r#"{"b": 1, "b": 2}"#)
            .err()
            .unwrap();
        assert!(twice.to_string().contains("\"b\" occurs twice"), "{twice}");
    }
}
