//! The arguments of `host quantize`.

use std::path::PathBuf;

use clap::Args;
use espalier_compare::bits::Asked;
use espalier_config::Sources;
use espalier_trainer::bytes::Bytes;
use espalier_trainer::error::Error;

use super::{NewModelArguments, given, unread, with_flag};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    host quantize --model models/llama --plugins nf4 --out models/llama-nf4\n  \
    host quantize --model models/llama --plugins nf4 --set quantizer.nf4.block_size=128 --out models/llama-nf4\n  \
    host quantize --model models/llama --plugins hqq --decoded --out models/llama-decoded\n  \
    host quantize --model models/llama --auto-bits --memory 5GiB --data rows.jsonl\n\n\
    With --auto-bits every option is measured on every weight: the weight alone is packed, and the KL\n\
    of the predictions to those of the dense model is taken on some rows. The options that fit into\n\
    --memory with the least sum of these are chosen. The table FILE (bits.json) keeps all that was\n\
    measured: a stopped measurement goes on, and another --memory measures nothing again. The choice\n\
    is written beside it (bits.toml), for --config; with --out the packed model is written as well.")]
pub struct QuantizeArguments {
    #[command(flatten)]
    pub model: NewModelArguments,
    /// Write what the packed weights decode to, in f32 and under the names of the dense model, for
    /// other programs to compare or evaluate
    #[arg(long, conflicts_with = "auto_bits")]
    pub decoded: bool,
    /// Measure what each option costs each weight, keep it in FILE (bits.json), and choose
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = "bits.json",
        requires = "memory"
    )]
    pub auto_bits: Option<PathBuf>,
    /// Bytes in memory that all weights of the base may take, packed or not: 20GiB
    #[arg(long, value_name = "SIZE", requires = "auto_bits")]
    memory: Option<Bytes>,
    /// Options to choose among, as arms of a comparison are written; `none` stays dense
    #[arg(
        long,
        value_name = "OPTIONS",
        value_delimiter = ',',
        default_values_t = espalier_shipped::BIT_OPTIONS.map(str::to_owned),
        requires = "auto_bits"
    )]
    options: Vec<String>,
    /// Files of rows to measure on, or to calibrate a quantizer on that wants statistics (gptq)
    #[arg(long, value_name = "FILE", num_args = 1..)]
    data: Vec<String>,
    /// Most tokens to measure on, of rows drawn by run.seed
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2048,
        value_parser = clap::value_parser!(u64).range(1..),
        requires = "auto_bits"
    )]
    tokens: u64,
}

impl QuantizeArguments {
    /// Refuses keys that this command does not read.
    ///
    /// # Errors
    /// [`Error::Usage`], naming the first such key.
    pub fn check(&self) -> Result<(), Error> {
        if self.auto_bits.is_some() {
            let more = [unread::ADAPTERS, &["run.eval_answers"]];
            return self.model.check_with_numbers("quantize", &more);
        }
        // Of the rows' keys, a quantizer that is calibrated reads those that say how rows are read.
        let rows: &[&str] = &["run.eval_answers"];
        self.model.check("quantize", &[rows, unread::ADAPTERS])
    }

    /// All layers, the flags last.
    pub fn sources(&self) -> Sources {
        let sources = self.model.sources();
        with_flag(sources, "--data", "data.files", given(&self.data))
    }

    /// What `--auto-bits` asks for, where it is given.
    pub fn asked(&self) -> Option<Asked> {
        Some(Asked {
            table: self.auto_bits.clone()?,
            memory: self.memory?,
            options: self.options.clone(),
            tokens: self.tokens,
        })
    }
}
