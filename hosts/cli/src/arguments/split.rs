//! The arguments of `host split`.

use clap::Args;

use espalier_trainer::error::Error;

use super::{NewModelArguments, unread};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    host split --model models/llama --plugins lora --set adapter.lora.init=pissa --out models/llama-pissa\n  \
    host split --model models/llama --plugins nf4,lora --set adapter.lora.init=loftq --out models/llama-loftq\n\n\
    The adapter (DIR/adapter) begins with the largest singular vectors of the weights (pissa) or of what\n\
    packing loses (loftq), and the base (DIR/base) lacks them. Train both with\n  \
    host train --model models/llama-pissa/base --adapter models/llama-pissa/adapter --data train.jsonl --out runs/pissa")]
pub struct SplitArguments {
    #[command(flatten)]
    pub model: NewModelArguments,
}

impl SplitArguments {
    /// Refuses keys that this command does not read.
    ///
    /// # Errors
    /// [`Error::Usage`], naming the first such key.
    pub fn check(&self) -> Result<(), Error> {
        self.model.check("split", &[unread::ROWS])
    }
}
