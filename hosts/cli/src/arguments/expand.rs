//! The arguments of `host expand`.

use clap::Args;

use espalier_trainer::error::Error;

use super::{NewModelArguments, unread};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    host expand --model models/llama --out models/llama-more\n  \
    host expand --model models/llama-nf4 --rate 0.25 --out models/llama-nf4-more\n\n\
    The result has the model's logits. Train the added layers alone with\n  \
    host train --model models/llama-more --set model.train_only=expanded --data train.jsonl --out runs/more")]
pub struct ExpandArguments {
    #[command(flatten)]
    pub model: NewModelArguments,
    /// Layers to add, as a fraction of the model's, rounded down
    #[arg(long, value_name = "RATE", default_value_t = 0.1)]
    #[arg(allow_negative_numbers = true, overrides_with = "rate")]
    pub rate: f64,
}

impl ExpandArguments {
    /// Refuses keys that this command does not read.
    ///
    /// # Errors
    /// [`Error::Usage`], naming the first such key.
    pub fn check(&self) -> Result<(), Error> {
        self.model
            .check("expand", &[unread::ROWS, unread::ADAPTERS])
    }
}
