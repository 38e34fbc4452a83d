//! The same prompt continued by the host and by transformers, in turns -> tokens a second of each,
//! and the share of the rate at which memory is read.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum, value_parser};
use serde::Deserialize;

use super::speed::{Dtype, Inputs, KEEP_MEMORY, Method, Preset, Wanted, offline, threads};
use crate::backends;
use crate::golden::require;
use crate::median::median;
use crate::workspace::Workspace;

/// Text of some tens of tokens.
const PROMPT: &str = "one two three four five six seven eight nine ten eleven twelve";

/// Options of `cargo xtask peers generate`.
#[derive(Args)]
pub struct GenerateOptions {
    /// A Python with the packages of tests/golden/scripts/requirements.txt
    #[arg(long, value_name = "PYTHON")]
    python: PathBuf,
    /// The model, of random weights; `tiny` tries this command and its times say nothing
    #[arg(long, value_enum, default_value_t = Preset::Llama124m)]
    model: Preset,
    /// The base: packed by NF4 with double quantization, or as it is in the file
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Base::Nf4, Base::Dense])]
    bases: Vec<Base>,
    /// The number types of products
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Dtype::Bf16])]
    dtypes: Vec<Dtype>,
    /// Tokens of an answer
    #[arg(long, default_value_t = 128, value_parser = value_parser!(u64).range(2..))]
    tokens: u64,
    /// Rounds, each an answer by the host and by the peer
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u64).range(1..))]
    rounds: u64,
    /// Threads of either side [default: one for each core]
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    threads: Option<u64>,
}

/// How a model's linears are stored.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Base {
    /// 4 bits a weight.
    Nf4,
    /// bf16.
    Dense,
}

impl Base {
    fn name(self) -> &'static str {
        match self {
            Base::Nf4 => "nf4",
            Base::Dense => "dense",
        }
    }
}

/// What the script prints.
#[derive(Deserialize)]
struct Printed {
    tokens: f64,
    secs: f64,
    weight_bytes: f64,
    read_bytes_per_sec: f64,
}

/// Both sides, and what they read.
struct Turns<'a> {
    workspace: &'a Workspace,
    options: &'a GenerateOptions,
    host: PathBuf,
    inputs: Inputs,
    threads: String,
}

/// Answers by both in turns, and prints the table.
///
/// # Errors
/// Where Python lacks a peer or a program fails.
pub fn measure(workspace: &Workspace, options: &GenerateOptions) -> Result<()> {
    let scripts = workspace.root.join("tests/golden/scripts");
    require(&options.python, &scripts.join("requirements.txt"))?;
    let wanted = Wanted {
        python: &options.python,
        model: options.model,
        rows: 1,
        sequence: 2,
        prompt: 0,
    };
    let turns = Turns {
        workspace,
        options,
        threads: threads(options.threads)?.to_string(),
        host: backends::host(workspace)?,
        inputs: Inputs::make(workspace, &wanted, &workspace.target.join("peers-generate"))?,
    };
    println!(
        "\n| base | dtype | host, tokens/s | peer | ratio | MB a token | reading, GB/s | share of it |\n\
         |---|---|---:|---:|---:|---:|---:|---:|"
    );
    for &base in &options.bases {
        for &dtype in &options.dtypes {
            let (mut ours, mut theirs, mut reading) = (Vec::new(), Vec::new(), Vec::new());
            let mut weight_bytes = 0.0;
            for _ in 0..options.rounds {
                ours.push(turns.host(base, dtype)?);
                let printed = turns.peer(base, dtype)?;
                theirs.push(printed.tokens / printed.secs);
                reading.push(printed.read_bytes_per_sec);
                weight_bytes = printed.weight_bytes;
            }
            let [ours, theirs, reading] = [ours, theirs, reading].map(median);
            println!(
                "| {} | {dtype} | {ours:.1} | {theirs:.1} | {:.2} | {:.1} | {:.1} | {:.2} |",
                base.name(),
                ours / theirs,
                weight_bytes / 1e6,
                reading / 1e9,
                ours * weight_bytes / reading
            );
        }
    }
    Ok(())
}

impl Turns<'_> {
    /// Tokens a second of the host's answer, behind its first token.
    fn host(&self, base: Base, dtype: Dtype) -> Result<f64> {
        let options = self.options;
        let mut host = Command::new(&self.host);
        host.args(["generate", "--prompt", PROMPT, "--model"])
            .arg(self.inputs.folder.join("model"))
            .args(["--max-tokens", &options.tokens.to_string()])
            .args(["--threads", &self.threads])
            .args(["--set", &format!("model.compute={dtype}")])
            .env_remove("GLIBC_TUNABLES");
        if let Base::Nf4 = base {
            host.args(["--plugins", "nf4"]);
            for (key, value) in Method::Nf4.quantizer_settings() {
                host.args(["--set", &format!("{key}={value}")]);
            }
        }
        let output = host.stdout(Stdio::null()).output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "host generate failed:\n{text}");
        let speed = text.rsplit_once("decode ").and_then(|(_, speed)| {
            let (tokens, rate) = speed.split_once(" tokens, ")?;
            let rate = rate.split_once(" tokens/s")?.0.parse().ok()?;
            Some((tokens.parse::<u64>().ok()?, rate))
        });
        let (tokens, rate) = speed.context("host generate printed no speed")?;
        ensure!(
            tokens >= options.tokens / 2,
            "the host's answer ended after {tokens} tokens"
        );
        Ok(rate)
    }

    fn peer(&self, base: Base, dtype: Dtype) -> Result<Printed> {
        let options = self.options;
        let mut peer = Command::new(&options.python);
        peer.arg(self.workspace.root.join("tests/peers/generate_peer.py"))
            .arg(&self.inputs.folder)
            .args(["--method", base.name(), "--dtype", &dtype.to_string()])
            .args(["--threads", &self.threads, "--prompt", PROMPT])
            .args(["--tokens", &options.tokens.to_string()])
            .env("OMP_NUM_THREADS", &self.threads)
            .env("GLIBC_TUNABLES", KEEP_MEMORY);
        offline(&mut peer);
        let output = peer.output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "generate_peer.py failed:\n{text}");
        serde_json::from_slice(&output.stdout).context("generate_peer.py printed no JSON")
    }
}
