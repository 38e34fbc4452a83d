//! The arguments of `host generate`.

use std::path::PathBuf;

use clap::Args;
use espalier_config::Sources;
use espalier_trainer::error::Error;
use espalier_trainer::generate::Sampling;
use espalier_trainer::recorded;

use super::unread::{self, Unread};
use super::{ModelArguments, RUN, with_flag};

/// Tokens of an answer unless --max-tokens says otherwise.
pub const MAX_TOKENS: usize = 256;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    host generate --model models/llama --prompt \"Once upon a time\"\n  \
    host generate --run runs/first --prompt \"What is a tree?\" --temperature 0.7 --top-p 0.9\n  \
    host generate --run runs/first --prompts questions.txt > answers.jsonl\n  \
    host generate --run runs/first --plugins nf4,fsdp --ranks 2 --prompt \"What is a tree?\"\n  \
    host generate --model models/chat --chat --system \"Answer in one sentence.\"")]
pub struct GenerateArguments {
    #[command(flatten)]
    model: ModelArguments,
    /// Output directory of a training run: its model, plugins, options and adapter
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,
    /// Text to continue; `-` reads standard input
    #[arg(long, value_name = "TEXT", conflicts_with = "prompts")]
    pub prompt: Option<String>,
    /// Answer many prompts at once: one a line, or JSON objects with `prompt` (.jsonl); prints JSON
    /// lines
    #[arg(long, value_name = "FILE")]
    pub prompts: Option<PathBuf>,
    /// Talk in the model's chat template: each prompt is a conversation's first turn; without one,
    /// a line of input a turn (`/reset` clears it, `/quit` ends)
    #[arg(long)]
    pub chat: bool,
    /// Message of the system before the first turn
    #[arg(long, value_name = "TEXT", requires = "chat")]
    pub system: Option<String>,
    /// Chat template by name, or a file; the tokenizer's own where left out
    #[arg(long, value_name = "NAME|FILE", requires = "chat")]
    chat_template: Option<String>,
    /// Divisor of the logits; 0 takes the likeliest token
    #[arg(
        long,
        value_name = "T",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    temperature: f64,
    /// Draw from the likeliest tokens that together have this probability
    #[arg(
        long,
        value_name = "P",
        default_value_t = 1.0,
        allow_negative_numbers = true
    )]
    top_p: f64,
    /// Draw from the K likeliest tokens; all where left out
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Most tokens of an answer
    #[arg(long, value_name = "N", default_value_t = MAX_TOKENS)]
    pub max_tokens: usize,
    /// Tokens of prompt and answer together; as many as needed where left out, at most 4096 to talk
    #[arg(long, value_name = "N")]
    pub context: Option<u64>,
    /// Rank threads of this process: they share the prompts, or the weights of one
    #[arg(long, value_name = "N", overrides_with = "ranks")]
    ranks: Option<u64>,
    /// Seed of the draws; run.seed (42) where left out
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// End an answer before this text; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// Show text alone: no loading, no speed
    #[arg(long)]
    pub quiet: bool,
}

impl GenerateArguments {
    /// All layers, those of the run first and the flags last.
    ///
    /// # Errors
    /// A `--run` directory that holds no finished run.
    pub fn sources(&self) -> Result<Sources, espalier_trainer::Error> {
        let mut sources = self.model.sources();
        if let Some(run) = &self.run {
            sources = sources.recorded(RUN, recorded::of_model(run)?);
        }
        let template = self.chat_template.clone();
        let sources = with_flag(sources, "--ranks", "run.ranks", self.ranks);
        Ok(with_flag(
            sources,
            "--chat-template",
            "data.chat_template",
            template,
        ))
    }

    /// Refuses keys that this command does not read.
    ///
    /// # Errors
    /// As [`Unread::refuse`].
    pub fn check(&self) -> Result<(), Error> {
        self.model.config.refuse(&Unread {
            command: "generate",
            keys: &[
                unread::TRAINING,
                unread::COMPARISON,
                unread::ROWS,
                unread::OUTPUT,
            ],
            but: &["data.chat_template"],
        })
    }

    /// How tokens are chosen; `seed` is that of the config.
    pub fn sampling(&self, seed: u64) -> Sampling {
        Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            seed: self.seed.unwrap_or(seed),
        }
    }
}
