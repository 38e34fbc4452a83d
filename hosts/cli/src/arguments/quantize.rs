//! The arguments of `host quantize`.

use clap::Args;

use espalier_trainer::error::Error;

use super::{NewModelArguments, unread};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    host quantize --model models/llama --plugins nf4 --out models/llama-nf4\n  \
    host quantize --model models/llama --plugins nf4 --set quantizer.nf4.block_size=128 --out models/llama-nf4")]
pub struct QuantizeArguments {
    #[command(flatten)]
    pub model: NewModelArguments,
}

impl QuantizeArguments {
    /// Refuses keys that this command does not read.
    ///
    /// # Errors
    /// [`Error::Usage`], naming the first such key.
    pub fn check(&self) -> Result<(), Error> {
        self.model
            .check("quantize", &[unread::ROWS, unread::ADAPTERS])
    }
}
