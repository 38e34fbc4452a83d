//! The arguments of `host merge`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use espalier_config::Sources;
use espalier_trainer::convert::merge_check::CheckRows;
use espalier_trainer::error::Error;
use espalier_trainer::recorded;

use super::{NewModelArguments, RUN, unread, with_flag};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    host merge --run runs/first --out models/llama-mine\n  \
    host merge --model models/llama --adapter runs/first/adapter --out models/llama-mine\n  \
    host merge --model models/llama --plugins nf4 --adapter runs/first/adapter --base decoded --out models/llama-mine\n  \
    host merge --model models/llama --adapter runs/first/adapter --out models/llama-mine --check")]
pub struct MergeArguments {
    #[command(flatten)]
    pub model: NewModelArguments,
    /// Output directory of a training run: its model, plugins, options and adapter
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,
    /// PEFT adapter directory
    #[arg(long, value_name = "DIR", overrides_with = "adapter")]
    adapter: Option<String>,
    /// What the adapter is added to: the stored weights, or the values that the quantizer decodes
    /// to
    #[arg(long, value_enum)]
    pub base: Option<BaseChoice>,
    /// Number type of all weights written [default: each as it was stored]
    #[arg(long, value_enum)]
    pub dtype: Option<DtypeChoice>,
    /// Compare the logits of the merged model with those of the adapter's, in f32: on the rows of a
    /// file, or on random tokens. This holds a whole model in memory
    #[arg(long, value_name = "FILE", num_args = 0..=1, overrides_with = "check")]
    check: Option<Option<PathBuf>>,
}

/// A value of `--base`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BaseChoice {
    /// The dense weights of the checkpoint (default where it has them)
    Original,
    /// What the quantizer makes of them (default where the checkpoint is packed)
    Decoded,
}

/// A value of `--dtype`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DtypeChoice {
    /// 32 bits
    F32,
    /// bfloat16
    Bf16,
    /// 16-bit IEEE
    F16,
}

impl MergeArguments {
    /// Refuses keys that this command does not read.
    ///
    /// # Errors
    /// [`Error::Usage`], naming the first such key.
    pub fn check(&self) -> Result<(), Error> {
        let rows: &[&[&str]] = match self.check {
            Some(Some(_)) => &[],
            _ => &[unread::ROWS],
        };
        self.model.check("merge", rows)
    }

    /// The rows of the check that was asked for.
    pub fn check_rows(&self) -> Option<CheckRows> {
        let rows = self.check.clone()?;
        Some(rows.map_or(CheckRows::Random, CheckRows::File))
    }

    /// All layers, those of the run first and the flags last.
    ///
    /// # Errors
    /// As [`recorded::of_model`].
    pub fn sources(&self) -> Result<Sources, Error> {
        let mut sources = self.model.sources();
        if let Some(run) = &self.run {
            let keys = match self.check {
                Some(Some(_)) => recorded::of_rows(run)?,
                _ => recorded::of_model(run)?,
            };
            sources = sources.recorded(RUN, keys);
        }
        let adapter = self.adapter.clone();
        Ok(with_flag(sources, "--adapter", "model.adapter", adapter))
    }
}
