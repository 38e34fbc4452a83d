//! What a search decides: a strategy with its options, recompute and the micro-batch.

use std::fmt;

use espalier_compile::recompute::Recompute;
use espalier_config::Section;
use serde::Serialize;

/// What a search decides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// The sharding strategy.
    pub strategy: String,
    /// Those of its options that were searched.
    pub options: Section,
    /// What is computed again in the backward pass.
    pub recompute: Recompute,
    /// Sequences at once on a rank; unset where `data.pack_tokens` decides.
    pub micro_batch: Option<u64>,
}

impl Choice {
    /// The text of an option, where it was searched.
    pub(super) fn option(&self, name: &str) -> Option<&str> {
        self.options.get(name)?.as_str()
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.strategy)?;
        for (name, value) in &self.options {
            match (name.as_str(), value.as_str()) {
                ("strategy", Some(value)) => write!(f, " {value}")?,
                ("offload", Some("none")) | ("gather", Some("shards")) => {}
                (name, Some(value)) => write!(f, ", {name} {value}")?,
                (_, None) if value == false => {}
                (name, None) => write!(f, ", {name} {value}")?,
            }
        }
        let recompute = serde_json::to_value(self.recompute).expect("a name");
        write!(f, "; recompute {}", recompute.as_str().unwrap_or("none"))?;
        match self.micro_batch {
            Some(micro_batch) => write!(f, ", micro_batch {micro_batch}"),
            None => Ok(()),
        }
    }
}
