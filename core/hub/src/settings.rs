//! The environment of the Hugging Face tools -> the hub's address and the user's token.

use std::env;

use espalier_system::files::{FetchError, FileError, hub_token_file};

const ENDPOINT: &str = "https://huggingface.co";

/// The hub's address and the user's token.
#[derive(Clone)]
pub(crate) struct Settings {
    /// Without a slash at its end.
    pub endpoint: String,
    pub token: Option<String>,
}

impl Settings {
    /// `HF_ENDPOINT`; `HF_TOKEN` or the file that `hf auth login` writes.
    pub fn from_environment() -> Self {
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        let named = variable("HF_TOKEN").or_else(|| variable("HUGGING_FACE_HUB_TOKEN"));
        let kept = || std::fs::read_to_string(hub_token_file()).ok();
        let token = named.or_else(kept).map(|token| token.trim().to_owned());
        Settings {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: token.filter(|token| !token.is_empty()),
        }
    }

    /// The repository `name` was not fetched for that reason.
    pub fn refused(&self, name: &str, reason: FetchError) -> FileError {
        FileError::NotFetched {
            name: name.to_owned(),
            endpoint: self.endpoint.clone(),
            reason,
        }
    }
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
