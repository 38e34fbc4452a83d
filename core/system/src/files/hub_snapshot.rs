//! A path in a Hugging Face cache -> the repository and the commit that it belongs to.

use std::path::{Component, Path};

use serde::Serialize;

use super::RepoKind;

/// A commit of a repository, as the path of its files names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct HubSnapshot {
    /// The kind of repository.
    #[serde(skip)]
    pub kind: RepoKind,
    /// Its id, `org/name`.
    pub repository: String,
    /// The commit.
    pub commit: String,
}

impl HubSnapshot {
    /// The snapshot that `path` is, or is in; none for a path outside of every cache.
    pub fn of(path: &Path) -> Option<Self> {
        let parts: Vec<&str> = path
            .components()
            .map(|part| match part {
                Component::Normal(name) => name.to_str().unwrap_or_default(),
                _ => "",
            })
            .collect();
        let (kind, folder, commit) = parts.windows(3).rev().find_map(|part| {
            let kind = kind_of(part[0]).filter(|_| part[1] == "snapshots")?;
            Some((kind, part[0], part[2]))
        })?;
        let id = folder
            .strip_prefix(kind.folder_prefix())?
            .strip_prefix("--")?;
        Some(HubSnapshot {
            kind,
            repository: id.replacen("--", "/", 1),
            commit: commit.to_owned(),
        })
    }
}

fn kind_of(folder: &str) -> Option<RepoKind> {
    let kinds = [RepoKind::Model, RepoKind::Dataset];
    let is_of = |kind: &RepoKind| {
        let rest = folder.strip_prefix(kind.folder_prefix());
        rest.is_some_and(|rest| rest.starts_with("--"))
    };
    kinds.into_iter().find(is_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_a_cache_name_repository_and_commit() {
        let of = |path: &str| HubSnapshot::of(Path::new(path));
        let model = of("/c/hub/models--org--a--b/snapshots/12ab").expect("a snapshot");
        let shown = |found: &HubSnapshot| (found.repository.clone(), found.commit.clone());
        assert_eq!(shown(&model), ("org/a--b".to_owned(), "12ab".to_owned()));
        assert_eq!(model.kind, RepoKind::Model);
        let rows = of("/c/datasets--org--rows/snapshots/ff/data/train.jsonl").expect("a file");
        assert_eq!(shown(&rows), ("org/rows".to_owned(), "ff".to_owned()));
        assert_eq!(rows.kind, RepoKind::Dataset);
        for path in [
            "models/llama",
            "/c/models--a--b/refs/main",
            "/c/snapshots/1",
            "x",
        ] {
            assert_eq!(of(path), None, "{path}");
        }
    }
}
