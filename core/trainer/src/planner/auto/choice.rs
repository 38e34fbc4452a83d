//! The choice of a search: a strategy with its options, recompute and the micro-batch.

use std::fmt;

use espalier_compile::recompute::Recompute;
use espalier_config::Section;
use espalier_interface::search::{MemoryStage, key_of};
use serde::Serialize;

/// The choice of a search.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// The sharding strategy.
    pub strategy: String,
    /// Its searched options.
    pub options: Section,
    /// The activations that are recomputed in the backward pass.
    pub recompute: Recompute,
    /// Sequences at once on a rank; `None` where `data.pack_tokens` sets them.
    pub micro_batch: Option<u64>,
    /// The memory stage of the strategy with its options.
    #[serde(skip)]
    pub stage: MemoryStage,
    /// The defaults of the strategy's options, which the text omits.
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
