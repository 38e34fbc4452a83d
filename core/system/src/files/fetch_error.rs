//! Why a repository of the hub was not fetched, with the exit class and the next step.

use crate::failure::ExitClass;

/// The reason why a repository is not in the cache.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The hub has no such repository, or does not say so to this user.
    #[error("the hub has no such repository (HTTP status 404)")]
    Unknown,
    /// The hub asks for a token, or for another one.
    #[error("{}", closed(.status, .has_token))]
    Closed {
        /// The HTTP status, 401 or 403.
        status: u16,
        /// Whether a token was sent.
        has_token: bool,
    },
    /// The repository holds none of the files that are needed.
    #[error("the repository has no {expected}{found}")]
    Lacks {
        /// The files.
        expected: String,
        /// What it has instead, after a comma; empty if that says nothing.
        found: String,
    },
    /// No connection, or one that ended.
    #[error("{0}")]
    Connection(String),
    /// An answer that is not the hub's, or a file that is not the one that was announced.
    #[error("{0}")]
    Answer(String),
    /// A signal asked to stop.
    #[error("stopped by signal {0}")]
    Stopped(i32),
}

impl FetchError {
    pub(super) fn exit_class(&self) -> ExitClass {
        match self {
            FetchError::Unknown | FetchError::Closed { .. } => ExitClass::Usage,
            FetchError::Lacks { .. } | FetchError::Answer(_) => ExitClass::Checkpoint,
            FetchError::Connection(_) => ExitClass::Resources,
            FetchError::Stopped(signal) => ExitClass::Signal(*signal),
        }
    }

    pub(super) fn next_step(&self) -> &'static str {
        match self {
            FetchError::Unknown => {
                "check the path or the repository's name; a private one needs a token in HF_TOKEN"
            }
            FetchError::Closed { .. } => {
                "check the name, accept the repository's conditions on its page, and set HF_TOKEN \
                 to a token that may read it"
            }
            FetchError::Lacks { .. } => "name a repository that has them",
            FetchError::Connection(_) => {
                "check the network, or HF_ENDPOINT, and start again: the download goes on where \
                 it ended"
            }
            FetchError::Answer(_) => "check HF_ENDPOINT, and start again",
            FetchError::Stopped(_) => "start again: the download goes on where it ended",
        }
    }
}

fn closed(status: &u16, has_token: &bool) -> String {
    let reason = if *has_token {
        "the token that was sent does not open it"
    } else {
        "it is private, needs its conditions accepted, or does not exist"
    };
    format!("{reason} (HTTP status {status})")
}
