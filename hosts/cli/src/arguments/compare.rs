//! The arguments of `host compare`.

use clap::{Args, ValueEnum};
use espalier_config::Sources;

use super::{RunArguments, given, with_flag};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    host compare --plugins lora --arms nf4,nf4:block_size=128 --model models/llama \\\n    \
    --data train.jsonl --set data.eval_split=0.1 --out runs/block-sizes\n  \
    host compare --config configs/compare.toml --eval-only --out runs/error-alone\n  \
    host compare --eval-only --bits bits.json --arms hqq:bits=3,hqq:bits=4 --model models/llama \\\n    \
    --data train.jsonl --set data.eval_split=0.1 --out runs/bits\n\n\
    An arm in short is the name of a component, with values of its options behind colons; it takes\n\
    the place of the run's component of that role. `dense` is the arm without a quantizer. Such an\n\
    arm is called as it is written, with a hyphen for all but letters, digits and . _ - = +, and so\n\
    is its folder: nf4:block_size=128 trains in OUT/arms/nf4-block_size=128/seed-42.\n\
    Other arms are [[arms]] in a --config file: a name, plugins = [...] and any sections, such\n\
    as quantizer.nf4.block_size = 128, adapter.lora.rank = 4 or [[arms.sites]].")]
pub struct CompareArguments {
    #[command(flatten)]
    run: RunArguments,
    /// Arms in short: nf4,nf4:block_size=128
    #[arg(long, value_name = "ARMS", value_delimiter = ',')]
    arms: Vec<String>,
    /// Beside each arm in short that is an option of this table, which `host quantize --auto-bits`
    /// wrote, compare the bits chosen for the same memory
    #[arg(long, value_name = "TABLE", overrides_with = "bits")]
    bits: Option<String>,
    /// Runs of each arm, under seeds from run.seed on; 3 at least for a verdict
    #[arg(long, value_name = "N", overrides_with = "seeds")]
    seeds: Option<u64>,
    /// Order of the arms' steps; no result depends on it
    #[arg(
        long,
        value_enum,
        overrides_with = "schedule",
        conflicts_with = "eval_only"
    )]
    schedule: Option<ScheduleChoice>,
    /// Add no arm without a quantizer as the baseline
    #[arg(long)]
    no_dense: bool,
    /// Measure the arms' weights and predictions, and train nothing
    #[arg(long)]
    eval_only: bool,
    /// Show the arms, what each changes and its plan, and stop
    #[arg(long)]
    pub dry_run: bool,
    /// Continue the comparison in --out: finished runs stay unchanged
    #[arg(long)]
    pub resume: bool,
    /// Show no progress
    #[arg(long)]
    pub quiet: bool,
}

/// `--schedule`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ScheduleChoice {
    /// All arms in memory, a step of each in turn
    Interleaved,
    /// One run after the other
    Sequential,
}

impl CompareArguments {
    /// All layers, the flags last.
    pub fn sources(&self) -> Sources {
        let sources = self.run.sources();
        let sources = with_flag(sources, "--arms", "compare.arms", given(&self.arms));
        let sources = with_flag(sources, "--bits", "compare.bits", self.bits.clone());
        let sources = with_flag(sources, "--seeds", "compare.seeds", self.seeds);
        let schedule = self.schedule.map(|choice| match choice {
            ScheduleChoice::Interleaved => "interleaved",
            ScheduleChoice::Sequential => "sequential",
        });
        let sources = with_flag(sources, "--schedule", "compare.schedule", schedule);
        let dense = self.no_dense.then_some(false);
        let sources = with_flag(sources, "--no-dense", "compare.dense", dense);
        let eval_only = self.eval_only.then_some(true);
        with_flag(sources, "--eval-only", "compare.eval_only", eval_only)
    }
}
