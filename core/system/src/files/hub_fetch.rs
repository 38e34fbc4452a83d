//! What a cache lacks of a repository -> a request to the way of fetching it that the host set. The
//! core itself opens no connection.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::{FileError, RepoKind};

static FETCHER: OnceLock<Arc<dyn Fetch>> = OnceLock::new();

/// Variables that forbid to ask the hub.
///
/// # Source
///
/// huggingface_hub, constants.py
const OFFLINE: [&str; 2] = ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"];

/// The part of a repository that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The config, the tokenizer and the chat template of a model; the config of an adapter.
    Description,
    /// The weights of a model: `model.safetensors`, or an index and its shards.
    Weights,
    /// The weights of an adapter.
    AdapterWeights,
    /// All files of rows.
    Rows,
}

/// A part of a repository, and the cache that it belongs into.
#[derive(Clone, Copy, Debug)]
pub struct FetchRequest<'a> {
    /// The cache's directory.
    pub root: &'a Path,
    /// The kind of repository.
    pub kind: RepoKind,
    /// Its id, `org/name`.
    pub id: &'a str,
    /// The commit; none for that of `main`, which then becomes the cache's `main`.
    pub commit: Option<&'a str>,
    /// What is asked for.
    pub wanted: Wanted,
}

impl FetchRequest<'_> {
    /// The repository's folder in the cache.
    pub fn folder(&self) -> PathBuf {
        self.root.join(self.kind.folder_of(self.id))
    }
}

/// A way to bring files of a repository into a cache.
pub trait Fetch: Debug + Send + Sync {
    /// Brings what is asked for. On success the cache holds all of it that the repository has.
    ///
    /// # Errors
    /// [`FileError::NotFetched`], and errors of writing.
    fn fetch(&self, request: &FetchRequest<'_>) -> Result<(), FileError>;
}

/// Sets the way of fetching for this process; only the first call has an effect. Without one
/// nothing is fetched.
pub fn fetch_with(fetcher: Arc<dyn Fetch>) {
    let _ = FETCHER.set(fetcher);
}

/// The way of fetching that the host set.
pub(super) fn fetcher() -> Option<Arc<dyn Fetch>> {
    FETCHER.get().cloned()
}

/// The variable that forbids to ask the hub, if one does.
pub(super) fn offline(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<&'static str> {
    let is_set = |name: &&str| {
        let value = variable(name).unwrap_or_default();
        let value = value.to_string_lossy().to_uppercase();
        ["1", "ON", "YES", "TRUE"].contains(&value.as_str())
    };
    OFFLINE.into_iter().find(is_set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offline_is_what_the_hub_s_tools_take_for_true() {
        let of = |value: &str| offline(|name| (name == OFFLINE[0]).then(|| value.into()));
        for value in ["1", "true", "Yes", "ON"] {
            assert_eq!(of(value), Some("HF_HUB_OFFLINE"), "{value}");
        }
        for value in ["", "0", "false", "2"] {
            assert_eq!(of(value), None, "{value}");
        }
    }
}
