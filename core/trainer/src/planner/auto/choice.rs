//! What a search decides: a strategy with its options, recompute and the micro-batch.

use std::fmt;

use espalier_compile::recompute::Recompute;
use espalier_config::Section;
use espalier_interface::search::{MemoryStage, key_of};
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
    /// What the strategy with its options does for memory.
    #[serde(skip)]
    pub stage: MemoryStage,
    /// The defaults of the strategy's options: the text leaves them out.
    #[serde(skip)]
    pub defaults: Section,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.strategy)?;
        let set = self.options.iter();
        for (name, value) in set.filter(|(name, value)| self.defaults.get(*name) != Some(*value)) {
            write!(f, ", {name} {}", key_of(value))?;
        }
        let recompute = serde_json::to_value(self.recompute).expect("a name");
        write!(f, "; recompute {}", recompute.as_str().unwrap_or("none"))?;
        match self.micro_batch {
            Some(micro_batch) => write!(f, ", micro_batch {micro_batch}"),
            None => Ok(()),
        }
    }
}
