//! The command line of `host plan`.

use std::path::PathBuf;

use clap::Args;
use espalier_plan::plan::assumed::Devices;
use espalier_plan::plan::{Assumed, GivenSpeeds};
use espalier_trainer::bytes::Bytes;
use espalier_trainer::error::Error;
use espalier_trainer::planner::{Asked, LadderName};

use super::RunArguments;
use super::unread::{self, Unread};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    host plan --plugins nf4,lora --model models/llama --data train.jsonl --json\n  \
    host plan --plugins nf4,lora --preset llama2-70b --assume 48GiB --host-memory 64GiB\n  \
    host plan --auto --plugins nf4,lora --preset llama2-70b --assume 2x24GiB --host-memory 64GiB\n  \
    host plan --plugins lora --model models/llama --bits bits.json --memory 5GiB\n  \
    host plan --ladder --preset llama3.2-3b\n  \
    host plan --ladder=optimizers --model models/llama --set data.max_seq_len=512")]
pub struct PlanArguments {
    #[command(flatten)]
    pub run: RunArguments,
    /// Search strategy, offload, recompute and micro-batch for the fastest plan that fits; what is
    /// set stays. Done anyway for several ranks without a strategy
    #[arg(long)]
    pub auto: bool,
    /// Plan the steps of a published ladder down to less memory, each with its arithmetic and its
    /// options: `optimizers`, or `recipe`; left out, the one of --preset
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true)]
    #[arg(conflicts_with_all = ["auto", "bits", "explain"])]
    pub ladder: Option<Option<LadderName>>,
    /// Show the arithmetic of memory and traffic, and the kernel launches by op
    #[arg(long)]
    pub explain: bool,
    /// Print the plan as JSON
    #[arg(long)]
    pub json: bool,
    /// Plan for a well-known model without its files: llama3-8b; a wrong name lists all
    #[arg(long, value_name = "NAME", conflicts_with_all = ["model", "data"])]
    pub preset: Option<String>,
    /// Plan for devices with this much memory, a rank each, instead of those that are here: 2x24GiB
    #[arg(long, value_name = "[N x]SIZE")]
    pub assume: Option<Devices>,
    /// Plan for this much host memory instead of this machine's: 64GiB
    #[arg(long, value_name = "SIZE")]
    pub host_memory: Option<Bytes>,
    /// Plan with the bits that fit into --memory, by what `host quantize --auto-bits` has measured
    /// into FILE
    #[arg(long, value_name = "FILE", requires = "memory")]
    pub bits: Option<PathBuf>,
    /// Bytes in memory that all weights of the base may take: 20GiB
    #[arg(long, value_name = "SIZE", requires = "bits")]
    pub memory: Option<Bytes>,
    /// Plan for this many machines with those devices and that memory each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub machines: Option<u32>,
    /// Matrix products of a rank, in 10^12 operations a second, instead of what is measured or
    /// assumed
    #[arg(long, value_name = "TFLOPS", value_parser = speed)]
    pub compute_tflops: Option<f64>,
    /// Bytes between a device and its host, in 10^9 a second in each direction, instead of what is
    /// measured or assumed
    #[arg(long, value_name = "GB/S", value_parser = speed)]
    pub link_gbs: Option<f64>,
    /// Bytes between devices of a machine, in 10^9 a second; left out, they go through the host's
    /// memory
    #[arg(long, value_name = "GB/S", value_parser = speed)]
    pub peer_gbs: Option<f64>,
    /// Bytes into a machine from others, in 10^9 a second; left out, 1.25
    #[arg(long, value_name = "GB/S", value_parser = speed)]
    pub network_gbs: Option<f64>,
}

impl PlanArguments {
    /// Refuses keys that this command does not read.
    ///
    /// # Errors
    /// As [`Unread::refuse`].
    pub fn check(&self) -> Result<(), Error> {
        self.run.config().refuse(&Unread {
            command: "plan",
            keys: &[unread::COMPARISON],
            but: &[],
        })
    }

    /// The machines and their speeds.
    pub fn asked(&self) -> Asked {
        Asked {
            assumed: Assumed {
                devices: self.assume,
                host: self.host_memory,
                machines: self.machines,
                ..Assumed::default()
            },
            speeds: GivenSpeeds {
                compute_tflops: self.compute_tflops,
                link_gbs: self.link_gbs,
                peer_gbs: self.peer_gbs,
                network_gbs: self.network_gbs,
            },
            explains: self.explain,
        }
    }
}

/// A number above 0.
fn speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(speed) if speed > 0.0 && f64::is_finite(speed) => Ok(speed),
        _ => Err("expected a number above 0".to_owned()),
    }
}
