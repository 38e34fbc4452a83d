//! The command line of `host plan`.

use clap::Args;
use espalier_trainer::bytes::Bytes;
use espalier_trainer::plan::assumed::Devices;

use super::RunArguments;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    host plan --plugins nf4,lora --model models/llama --data train.jsonl --json\n  \
    host plan --plugins nf4,lora --preset llama2-70b --assume 48GiB --host-memory 64GiB")]
pub struct PlanArguments {
    #[command(flatten)]
    pub run: RunArguments,
    /// Print the plan as JSON
    #[arg(long)]
    pub json: bool,
    /// Plan for a well-known model without its files: llama3-8b; a wrong name lists all
    #[arg(long, value_name = "NAME", conflicts_with = "model")]
    pub preset: Option<String>,
    /// Plan for a device with this much memory instead of one that is here: 24GiB
    #[arg(long, value_name = "[N x]SIZE")]
    pub assume: Option<Devices>,
    /// Plan for this much host memory instead of this machine's: 64GiB
    #[arg(long, value_name = "SIZE")]
    pub host_memory: Option<Bytes>,
}
