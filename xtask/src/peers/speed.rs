//! The same trainings by the host and by the peers, in turns -> one table: speed, memory, loading,
//! and how far the losses differ.

mod case;
mod host;
mod inputs;
mod machine;
mod peer;
mod record;
mod summary;
mod table;
mod timed_run;
mod watched;

use std::iter;
use std::path::PathBuf;
use std::thread;

use anyhow::{Context, Result, bail};
use clap::{Args, value_parser};

use case::Case;
pub use case::{Dtype, Method};
use host::Host;
pub use inputs::{Inputs, Preset, Wanted};
use machine::Machine;
pub use peer::KEEP_MEMORY;
use peer::Peer;
use record::Record;
use summary::Summary;
use timed_run::{Allocator, Side, TimedRun};
pub use watched::{Watched, offline, run as run_watched, run_until};

use crate::backends::Library;
use crate::golden::require;
use crate::workspace::Workspace;

/// Steps at the start of each run whose times do not count: they touch memory for the first time.
const UNCOUNTED_STEPS: usize = 2;

/// Options of `cargo xtask peers speed`.
#[derive(Args, Clone)]
pub struct SpeedOptions {
    /// A Python with the packages of tests/golden/scripts/requirements.txt
    #[arg(long, value_name = "PYTHON")]
    python: PathBuf,
    /// Where inputs, logs and results.json go; inputs that are there are used again [default: the
    /// target directory's `peers-speed`]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The model; `tiny` tries this command and its times say nothing
    #[arg(long, value_enum, default_value_t = Preset::Llama124m)]
    model: Preset,
    /// How is trained
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Method::ALL)]
    methods: Vec<Method>,
    /// The number types of products and activations
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Dtype::Bf16])]
    dtypes: Vec<Dtype>,
    /// Steps of a run; the times of the first two do not count
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u64).range(3..))]
    steps: u64,
    /// Rounds, each a run by the host and by the peer
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u64).range(1..))]
    rounds: u64,
    /// Rows of a step
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u64).range(1..))]
    batch: u64,
    /// Tokens of a row
    #[arg(long, default_value_t = 512, value_parser = value_parser!(u64).range(2..=8192))]
    sequence: u64,
    /// Tokens at the start of each row that are not trained, as those of a prompt
    #[arg(long, default_value_t = 0, value_name = "TOKENS")]
    prompt: u64,
    /// Threads of either side [default: one for each core]
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    threads: Option<u64>,
    /// Both sides compute activations again in the backward pass, layer by layer
    #[arg(long)]
    recompute: bool,
    /// In each round, run the peer also with the allocator as glibc installs it, up to twice as
    /// slow; without it the peer runs with an allocator that returns no memory
    #[arg(long)]
    as_installed: bool,
    /// The host's backend, which is built first [default: `cpu`]
    #[arg(long, value_enum)]
    backend: Option<Library>,
    /// Number type of the peer's adapters where products are bf16: bf16 as a model loaded in bf16
    /// trains fastest, or f32 under autocast, as Trainer's `bf16=True`; the host's are f32
    #[arg(long, value_enum, default_value_t = Dtype::Bf16)]
    peer_adapters: Dtype,
}

impl SpeedOptions {
    fn threads(&self) -> Result<u64> {
        threads(self.threads)
    }

    fn sides(&self) -> Vec<Side> {
        let installed = self.as_installed.then_some(Allocator::Installed);
        let allocators = iter::once(Allocator::Tuned).chain(installed);
        iter::once(Side::Host)
            .chain(allocators.map(Side::Peer))
            .collect()
    }
}

/// The threads that were asked for, or one for each core.
///
/// # Errors
/// Where the number of cores is unknown.
pub fn threads(asked: Option<u64>) -> Result<u64> {
    let cores = || thread::available_parallelism().map(|cores| cores.get() as u64);
    asked
        .map_or_else(cores, Ok)
        .context("the number of cores is unknown; pass --threads N")
}

/// Trains by the host and by the peers in turns, and prints the table.
///
/// # Errors
/// Where Python lacks a peer, a program fails, or losses differ by more than the case's bound.
pub fn measure(workspace: &Workspace, options: &SpeedOptions) -> Result<()> {
    let trained = options.sequence.saturating_sub(options.prompt);
    if trained < 2 {
        bail!(
            "--prompt {} leaves nothing to train of rows of {} tokens: expected {} at most",
            options.prompt,
            options.sequence,
            options.sequence - 2
        );
    }
    let golden = workspace.root.join("tests/golden");
    require(&options.python, &golden.join("scripts/requirements.txt"))?;
    let out = options.out.clone();
    let out = out.unwrap_or_else(|| workspace.target.join("peers-speed"));
    let wanted = Wanted {
        python: &options.python,
        model: options.model,
        rows: options.steps * options.batch,
        sequence: options.sequence,
        prompt: options.prompt,
    };
    let inputs = Inputs::make(workspace, &wanted, &out)?;
    let machine = Machine::read(options.threads()?)?;
    let host = Host::new(workspace, options, &inputs)?;
    let peer = Peer::new(workspace, options, &inputs)?;

    let mut record = Record::new(&out, options, &machine, &inputs);
    let mut summaries = Vec::new();
    for case in cases(options) {
        let encoded = peer.encode(case)?;
        let runs = rounds(options, case, &host, &peer, &mut record)?;
        summaries.push(Summary::of(case, &runs, encoded)?);
    }
    record.conclude(&summaries)?;
    print!("\n{}", table::render(&record, &summaries, options));
    let apart: Vec<String> = summaries.iter().filter_map(Summary::too_far).collect();
    if !apart.is_empty() {
        bail!("the losses differ: {}", apart.join("; "));
    }
    Ok(())
}

/// Every method in every dtype.
fn cases(options: &SpeedOptions) -> impl Iterator<Item = Case> {
    let of_dtype = |&dtype| {
        options
            .methods
            .iter()
            .map(move |&method| Case { method, dtype })
    };
    options.dtypes.iter().flat_map(of_dtype)
}

/// The runs of a case. Every second round goes in the other direction, so that no side always
/// follows the same other one.
fn rounds(
    options: &SpeedOptions,
    case: Case,
    host: &Host,
    peer: &Peer,
    record: &mut Record,
) -> Result<Vec<TimedRun>> {
    let mut runs = Vec::new();
    for round in 1..=options.rounds {
        let mut sides = options.sides();
        if round % 2 == 0 {
            sides.reverse();
        }
        for side in sides {
            let timed = match side {
                Side::Host => host.train(case, round)?,
                Side::Peer(allocator) => peer.train(case, round, allocator)?,
            };
            let tokens = (options.batch * options.sequence) as f64;
            println!("{}", timed.line(tokens, options.rounds));
            record.add(&timed)?;
            runs.push(timed);
        }
    }
    Ok(runs)
}
