//! The arguments of `host data`.

use clap::{Args, Subcommand};
use espalier_config::Sources;
use espalier_trainer::error::Error;

use super::ConfigArguments;
use super::unread::{self, Unread};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    host data show --data train.jsonl --model models/llama\n  \
    host data doctor --data train.jsonl --model models/llama")]
pub struct DataArguments {
    #[command(subcommand)]
    pub command: DataCommand,
}

#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Show rows as the trainer sees them: their tokens, and which of them are trained
    Show(ShowArguments),
    /// Find all that is wrong with rows at once: bad rows, what is cut off, what is not trained
    Doctor(RowDoctorArguments),
    /// Render a chat template in this process, for the process that asks
    #[command(
        hide = true,
        after_help = "Example:\n  host data show --data rows.jsonl --model DIR    # starts it by itself"
    )]
    Render,
}

/// Which rows, and how they are read.
#[derive(Debug, Args)]
pub struct RowArguments {
    #[command(flatten)]
    config: ConfigArguments,
    /// Model directory, as Hugging Face lays it out
    #[arg(long, value_name = "DIR")]
    model: Option<String>,
    /// Data files
    #[arg(long, value_name = "FILE", num_args = 1..)]
    data: Vec<String>,
    /// What the fields of a row mean: text, input_ids, alpaca, chat, prompt_completion
    #[arg(long, value_name = "NAME")]
    format: Option<String>,
    /// Chat template: a shipped one (llama2, llama3, mistral, chatml, zephyr), `tokenizer` or a
    /// file
    #[arg(long, value_name = "NAME|FILE")]
    chat_template: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    host data show --data train.jsonl --model models/llama\n  \
    host data show --data chats.parquet --model models/llama --chat-template chatml --rows 10 --set data.train_on='\"assistant\"'")]
pub struct ShowArguments {
    #[command(flatten)]
    pub source: RowArguments,
    /// Rows to show, the first ones
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub rows: usize,
    /// Print rows and counts as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    host data doctor --data train.jsonl --model models/llama\n  \
    host data doctor --config run.toml --set data.max_seq_len=1024 --json\n\n\
    Exit code 3 where something would stop a run, 0 otherwise.")]
pub struct RowDoctorArguments {
    #[command(flatten)]
    pub source: RowArguments,
    /// Bad rows to list, the first ones
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub rows: usize,
    /// Print all that is found as JSON
    #[arg(long)]
    pub json: bool,
}

impl RowArguments {
    /// Refuses keys that this command does not read.
    ///
    /// # Errors
    /// As [`Unread::refuse`].
    pub fn check(&self) -> Result<(), Error> {
        self.config.refuse(&Unread {
            command: "data",
            keys: &[
                &["optim.", "plugins", "sites", "run.epochs", "run.max_steps"],
                &[
                    "run.save_every",
                    "run.keep_last",
                    "run.eval_every",
                    "run.stop_after_worse",
                    "run.keep_best",
                    "run.eval_answers",
                ],
                unread::COMPARISON,
                unread::OUTPUT,
                unread::RANKS,
                unread::NUMBERS,
                unread::ADAPTERS,
                unread::SECTIONS,
            ],
            but: &[],
        })
    }

    /// All layers, the flags last.
    pub fn sources(&self) -> Sources {
        let mut sources = self.config.sources();
        if !self.data.is_empty() {
            sources = sources.flag("--data", "data.files", self.data.clone());
        }
        for (flag, key, value) in [
            ("--model", "model.path", &self.model),
            ("--format", "data.format", &self.format),
            ("--chat-template", "data.chat_template", &self.chat_template),
        ] {
            if let Some(value) = value {
                sources = sources.flag(flag, key, value.as_str());
            }
        }
        sources
    }
}
