//! A repository id -> the directory of its snapshot in the local Hugging Face cache.

use std::env;
use std::path::{Path, PathBuf};

use super::directory_member::is_plain_name;
use super::{FileError, FileKind, read_regular_text};

/// The kind of a repository, which the cache and the command line distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepoKind {
    /// A model or an adapter.
    Model,
    /// A data set.
    Dataset,
}

/// The cache that the Hugging Face tools download to: `models--org--name/{refs,snapshots,blobs}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubCache {
    root: PathBuf,
}

impl HubCache {
    /// The cache at `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        HubCache { root: root.into() }
    }

    /// The cache of this user.
    ///
    /// # Source
    ///
    /// huggingface_hub, constants.py: HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME/hub,
    /// XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub; the first that is set.
    pub fn from_environment() -> Self {
        Self::from_variables(|name| {
            env::var_os(name)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
        })
    }

    fn from_variables(variable: impl Fn(&str) -> Option<PathBuf>) -> Self {
        let user_home = variable("HOME").unwrap_or_else(|| PathBuf::from("."));
        let path = |name: &str| {
            variable(name).map(|path| match path.strip_prefix("~") {
                Ok(rest) => user_home.join(rest),
                Err(_) => path,
            })
        };
        let root = path("HF_HUB_CACHE")
            .or_else(|| path("HUGGINGFACE_HUB_CACHE"))
            .or_else(|| Some(path("HF_HOME")?.join("hub")))
            .or_else(|| Some(path("XDG_CACHE_HOME")?.join("huggingface/hub")))
            .unwrap_or_else(|| user_home.join(".cache/huggingface/hub"));
        HubCache { root }
    }

    /// The directory of `name`: `name` itself where it is a directory, else the cached snapshot of
    /// that repository's `main`.
    ///
    /// # Errors
    ///
    /// [`FileError::NotADirectory`], [`FileError::NotInCache`] and [`FileError::CacheIncomplete`];
    /// the last two print the command that downloads the repository.
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
        let command = download_command(kind, id);
        let repository = self.root.join(folder_name(kind, id));
        if !repository.is_dir() {
            let cache = self.root.clone();
            return Err(FileError::NotInCache {
                name: id.to_owned(),
                cache,
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

fn folder_name(kind: RepoKind, id: &str) -> String {
    let prefix = match kind {
        RepoKind::Model => "models",
        RepoKind::Dataset => "datasets",
    };
    format!("{prefix}--{}", id.replace('/', "--"))
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
        let cache = HubCache::from_variables(|name| {
            set.iter()
                .find(|(set, _)| *set == name)
                .map(|(_, value)| PathBuf::from(value))
        });
        cache.root.display().to_string()
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
