//! The kinds of repositories of the hub, and the names of their folders in a cache.

/// The kind of a repository, which the cache and the command line distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RepoKind {
    /// A model or an adapter.
    Model,
    /// A data set.
    Dataset,
}

impl RepoKind {
    /// What the names of its folders in a cache begin with.
    pub(super) fn folder_prefix(self) -> &'static str {
        match self {
            RepoKind::Model => "models",
            RepoKind::Dataset => "datasets",
        }
    }

    /// The folder of a repository in a cache: `models--org--name`.
    pub(super) fn folder_of(self, id: &str) -> String {
        format!("{}--{}", self.folder_prefix(), id.replace('/', "--"))
    }
}
