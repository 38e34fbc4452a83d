//! The arguments of `host eval`.

use clap::Args;

use super::RunArguments;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    host eval --model models/llama --data held-out.jsonl\n  \
    host eval --model models/llama --adapter runs/first/adapter --plugins nf4 --data held-out.jsonl --json")]
pub struct EvalArguments {
    #[command(flatten)]
    pub run: RunArguments,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Show no progress
    #[arg(long)]
    pub quiet: bool,
}
