//! The answer of a backend's method `ops` -> whether it has an op.

use std::collections::BTreeSet;

use espalier_interface::{KernelRequest, OpId, PluginError, Result};

/// The ops of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendOps {
    backend: String,
    /// None where the backend does not say.
    listed: Option<BTreeSet<OpId>>,
}

impl BackendOps {
    /// The ops that the backend called `backend` lists; without a list it has all.
    pub fn new(backend: &str, listed: Option<Vec<OpId>>) -> Self {
        BackendOps {
            backend: backend.to_owned(),
            listed: listed.map(|ops| ops.into_iter().collect()),
        }
    }

    /// True where the backend does not say which ops it has.
    pub fn has_all(&self) -> bool {
        self.listed.is_none()
    }

    /// Whether the backend has version `version` of `op`.
    pub fn has(&self, op: &str, version: u32) -> bool {
        let listed = self.listed.as_ref();
        listed.is_none_or(|listed| {
            let mut listed = listed.iter();
            listed.any(|one| one.name == op && one.version == version)
        })
    }

    /// Whether the backend says that it has version `version` of `op`.
    pub fn lists(&self, op: &str, version: u32) -> bool {
        !self.has_all() && self.has(op, version)
    }

    /// Checks that the backend has the op of `request`.
    ///
    /// # Errors
    /// `UNSUPPORTED`, naming the op, the backend and the ops that it has.
    pub fn check(&self, request: &KernelRequest) -> Result<()> {
        if self.has(&request.op, request.version) {
            return Ok(());
        }
        Err(self.lacks(&format!("op `{}`", request.op)))
    }

    /// The error for `what`, which the backend lacks.
    pub(super) fn lacks(&self, what: &str) -> PluginError {
        let listed = self.listed.iter().flatten();
        let names: Vec<String> = listed.map(OpId::to_string).collect();
        PluginError::unsupported(format!(
            "{what} is not among the ops of backend `{}` and has no decomposition into them; it \
             has {}",
            self.backend,
            if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            }
        ))
    }
}
