//! A repository id -> the directory of its snapshot in the local Hugging Face cache. What is
//! missing there is fetched, where the host set a way to do so.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory_member::{find_member, is_plain_name};
use super::hub_fetch::{self, Fetch, FetchRequest, Wanted};
use super::{FileError, FileKind, HubSnapshot, RepoKind, read_regular_text};
use crate::notice;

/// The cache that the Hugging Face tools download to: `models--org--name/{refs,snapshots,blobs}`.
#[derive(Clone, Debug)]
pub struct HubCache {
    root: PathBuf,
    fetcher: Option<Arc<dyn Fetch>>,
    /// The variable that forbids to ask the hub, if one does.
    offline: Option<&'static str>,
}

impl HubCache {
    /// The cache at `root`, into which nothing is fetched.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        HubCache {
            root: root.into(),
            fetcher: None,
            offline: None,
        }
    }

    /// The cache of this user.
    ///
    /// # Source
    ///
    /// huggingface_hub, constants.py: HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME/hub,
    /// XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub; the first that is set.
    pub fn from_environment() -> Self {
        let offline = hub_fetch::offline(variable);
        HubCache {
            root: root(variable),
            fetcher: hub_fetch::fetcher().filter(|_| offline.is_none()),
            offline,
        }
    }

    /// The directory of `name`: `name` itself where it is a directory, else the cached snapshot of
    /// that repository's `main`. A repository `org/name` that is not there is fetched: of a model
    /// all but its weights, of a dataset its files of rows.
    ///
    /// # Errors
    ///
    /// [`FileError::NotADirectory`], [`FileError::NotInCache`] and [`FileError::CacheIncomplete`];
    /// the last two print the command that downloads the repository. [`FileError::NotFetched`].
    pub fn resolve(&self, kind: RepoKind, name: &Path) -> Result<PathBuf, FileError> {
        if name.is_dir() {
            return Ok(name.to_owned());
        }
        let id = match name.to_str() {
            Some(id) if is_repo_id(id) && !name.exists() => id,
            _ => {
                return Err(FileError::NotADirectory {
                    path: name.to_owned(),
                });
            }
        };
        let cached = self.snapshot(kind, id);
        let is_complete = match &cached {
            Ok(snapshot) => is_described(kind, snapshot)?,
            Err(_) => false,
        };
        // A single word is a path, most likely.
        let fetcher = self.fetcher.as_ref().filter(|_| id.contains('/'));
        let Some(fetcher) = fetcher.filter(|_| !is_complete) else {
            return cached;
        };
        let commit = cached.as_deref().ok().and_then(HubSnapshot::of);
        let fetched = fetcher.fetch(&FetchRequest {
            root: &self.root,
            kind,
            id,
            commit: commit.as_ref().map(|snapshot| snapshot.commit.as_str()),
            wanted: match kind {
                RepoKind::Model => Wanted::Description,
                RepoKind::Dataset => Wanted::Rows,
            },
        });
        match (cached, fetched) {
            (_, Ok(())) => self.snapshot(kind, id),
            // What is there may do: other tools keep a part of a repository, too.
            (Ok(snapshot), Err(error)) => {
                notice::once(&error.to_string());
                Ok(snapshot)
            }
            (Err(_), Err(error)) => Err(error),
        }
    }

    /// Fetches `wanted` into `directory`, where that is the snapshot of a repository of this cache.
    /// True where something may be there now that was not before.
    ///
    /// # Errors
    ///
    /// [`FileError::NotFetched`], and errors of writing.
    pub(super) fn complete(&self, directory: &Path, wanted: Wanted) -> Result<bool, FileError> {
        let snapshot = HubSnapshot::of(directory).filter(|_| directory.starts_with(&self.root));
        let (Some(fetcher), Some(snapshot)) = (&self.fetcher, snapshot) else {
            return Ok(false);
        };
        fetcher.fetch(&FetchRequest {
            root: &self.root,
            kind: snapshot.kind,
            id: &snapshot.repository,
            commit: Some(&snapshot.commit),
            wanted,
        })?;
        Ok(true)
    }

    /// The directory of the commit that `main` of the repository is, as far as the cache knows.
    fn snapshot(&self, kind: RepoKind, id: &str) -> Result<PathBuf, FileError> {
        let command = download_command(kind, id);
        let repository = self.root.join(kind.folder_of(id));
        if !repository.is_dir() {
            return Err(FileError::NotInCache {
                name: id.to_owned(),
                cache: self.root.clone(),
                offline: self.offline,
                command,
            });
        }
        let incomplete = |problem: String| FileError::CacheIncomplete {
            path: repository.clone(),
            problem,
            command: command.clone(),
        };
        let revision = read_regular_text(&repository.join("refs/main"), FileKind::Revision)
            .map_err(|error| incomplete(format!("cannot read its refs/main: {error}")))?;
        let revision = revision.trim();
        if !is_plain_name(revision) {
            return Err(incomplete(format!(
                "its refs/main holds {revision:?}, no revision"
            )));
        }
        let snapshot = repository.join("snapshots").join(revision);
        if !snapshot.is_dir() {
            return Err(incomplete(format!("there is no snapshots/{revision}")));
        }
        Ok(snapshot)
    }
}

/// A variable of the environment, where it is set and not empty.
fn variable(name: &str) -> Option<PathBuf> {
    let value = env::var_os(name).filter(|value| !value.is_empty());
    value.map(PathBuf::from)
}

/// The path in a variable, with the user's directory for `~`.
fn path_in(variable: impl Fn(&str) -> Option<PathBuf>, name: &str) -> Option<PathBuf> {
    let path = variable(name)?;
    Some(match path.strip_prefix("~") {
        Ok(rest) => user_home(&variable).join(rest),
        Err(_) => path,
    })
}

fn user_home(variable: impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
    variable("HOME").unwrap_or_else(|| PathBuf::from("."))
}

/// The directory of the Hugging Face tools: HF_HOME, XDG_CACHE_HOME/huggingface,
/// ~/.cache/huggingface; the first that is set.
fn tools_home(variable: impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
    let below_cache = |cache: PathBuf| cache.join("huggingface");
    path_in(&variable, "HF_HOME")
        .or_else(|| path_in(&variable, "XDG_CACHE_HOME").map(below_cache))
        .unwrap_or_else(|| below_cache(user_home(&variable).join(".cache")))
}

/// The cache's directory.
fn root(variable: impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
    path_in(&variable, "HF_HUB_CACHE")
        .or_else(|| path_in(&variable, "HUGGINGFACE_HUB_CACHE"))
        .unwrap_or_else(|| tools_home(&variable).join("hub"))
}

/// The file in which the Hugging Face tools keep the user's token: HF_TOKEN_PATH, else `token`
/// beside the cache.
pub fn hub_token_file() -> PathBuf {
    path_in(variable, "HF_TOKEN_PATH").unwrap_or_else(|| tools_home(variable).join("token"))
}

/// Whether a snapshot of a model has what describes it, or an adapter. Files of rows are all
/// fetched before a snapshot is the one of `main`.
fn is_described(kind: RepoKind, snapshot: &Path) -> Result<bool, FileError> {
    let has = |name: &str| Ok::<_, FileError>(find_member(snapshot, name)?.is_some());
    Ok(match kind {
        RepoKind::Dataset => true,
        RepoKind::Model => {
            has("adapter_config.json")? || (has("config.json")? && has("tokenizer.json")?)
        }
    })
}

/// True for `name` and `org/name` with the characters of the hub: letters, digits, `-`, `_` and
/// `.`.
fn is_repo_id(id: &str) -> bool {
    let part = |part: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !part.is_empty()
            && part.len() <= 96
            && !part.starts_with(['.', '-'])
            && part.chars().all(plain)
    };
    id.split('/').count() <= 2 && id.split('/').all(part)
}

fn download_command(kind: RepoKind, id: &str) -> String {
    match kind {
        RepoKind::Model => format!("hf download {id}"),
        RepoKind::Dataset => format!("hf download --repo-type dataset {id}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root_of(set: &[(&str, &str)]) -> String {
        let root = root(|name| {
            set.iter()
                .find(|(set, _)| *set == name)
                .map(|(_, value)| PathBuf::from(value))
        });
        root.display().to_string()
    }

    #[test]
    fn variables_have_the_precedence_of_the_hub() {
        let home = ("HOME", "/home/u");
        assert_eq!(root_of(&[home]), "/home/u/.cache/huggingface/hub");
        assert_eq!(
            root_of(&[home, ("XDG_CACHE_HOME", "/x")]),
            "/x/huggingface/hub"
        );
        let hf_home = ("HF_HOME", "~/hf");
        assert_eq!(
            root_of(&[home, ("XDG_CACHE_HOME", "/x"), hf_home]),
            "/home/u/hf/hub"
        );
        let old = ("HUGGINGFACE_HUB_CACHE", "/old");
        assert_eq!(root_of(&[home, hf_home, old]), "/old");
        assert_eq!(
            root_of(&[home, hf_home, old, ("HF_HUB_CACHE", "/new")]),
            "/new"
        );
    }

    #[test]
    fn ids_are_distinguished_from_paths() {
        for id in ["gpt2", "org/name", "meta-llama/Llama-2-7b_hf.v1"] {
            assert!(is_repo_id(id), "{id}");
        }
        for path in [
            "", "/abs", "./rel", "../up", "a/b/c", "org/", "a b/c", "org/..", "~/m",
        ] {
            assert!(!is_repo_id(path), "{path}");
        }
    }
}
