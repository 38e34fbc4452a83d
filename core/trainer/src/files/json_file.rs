//! Small JSON files into values: bounded in size, a name that stands twice is an error.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::marker::PhantomData;
use std::path::Path;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error, MapAccess, Visitor};

use super::FileError;

/// Largest config file read, in bytes; real ones have a few thousand.
pub(super) const MAX_CONFIG_BYTES: u64 = 16 << 20;
/// Largest index file read, in bytes; that of a model with 100 000 tensors has about 10 MB.
pub(super) const MAX_INDEX_BYTES: u64 = 100 << 20;

/// The regular file `path`, opened, and its size in bytes. Never blocks on a pipe or a device.
pub(super) fn open_regular(path: &Path) -> Result<(File, u64), FileError> {
    let fail = |source| FileError::Read {
        path: path.to_owned(),
        source,
    };
    let metadata = std::fs::metadata(path).map_err(fail)?;
    if !metadata.is_file() {
        return Err(FileError::NotAFile {
            path: path.to_owned(),
        });
    }
    let file = File::open(path).map_err(fail)?;
    let bytes = file.metadata().map_err(fail)?.len();
    Ok((file, bytes))
}

/// The JSON in `path`, which may have at most `limit` bytes.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path, limit: u64) -> Result<T, FileError> {
    let (file, found) = open_regular(path)?;
    if found > limit {
        return Err(FileError::TooLarge {
            path: path.to_owned(),
            found,
            limit,
        });
    }
    let mut text = Vec::new();
    file.take(limit)
        .read_to_end(&mut text)
        .map_err(|source| FileError::Read {
            path: path.to_owned(),
            source,
        })?;
    serde_json::from_slice(&text).map_err(|source| FileError::Json {
        path: path.to_owned(),
        source,
    })
}

/// The JSON object in `path`, which may have at most 16 MiB.
///
/// # Errors
/// A file that cannot be read, is too large or holds something else.
pub fn read_object(path: &Path) -> Result<serde_json::Value, FileError> {
    let value: serde_json::Value = read_json(path, MAX_CONFIG_BYTES)?;
    if value.is_object() {
        return Ok(value);
    }
    let source = serde_json::Error::custom("expected an object `{...}` at the top");
    Err(FileError::Json {
        path: path.to_owned(),
        source,
    })
}

/// A JSON object in its order, without two entries of one name.
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
                return Err(A::Error::custom(format!("{name:?} stands twice")));
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
        assert!(twice.to_string().contains("\"b\" stands twice"), "{twice}");
    }
}
