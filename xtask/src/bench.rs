//! Turns runs side by side into ratios: what plugins of third parties cost beside the shipped ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::golden::require;
use crate::workspace::{Workspace, run};

/// What a third party's quantizer may cost beyond the shipped one.
const MOST_BEYOND: f64 = 0.1;

/// Options of `cargo xtask bench`.
#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Packed training with `linear4`, a third party's quantizer described as data, beside `nf4`
    ThirdParty {
        /// Rounds, each a run of both
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Steps of a run
        #[arg(long, default_value_t = 8)]
        steps: usize,
    },
    /// Calls through the boundary between host and plugins, as a share of a training step
    Door,
    /// Encoding by the plugin `hqq` beside the hqq library, on the same weights in turns
    Hqq {
        /// A Python with the packages of tests/golden/scripts/requirements.txt
        #[arg(long, value_name = "PYTHON")]
        python: PathBuf,
        /// Rounds, each an encoding by both
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Rows of the weights
        #[arg(long, default_value_t = 4096)]
        rows: usize,
        /// Columns of each weight
        #[arg(long, default_value = "4096,11008")]
        cols: String,
    },
}

/// Measures, and prints what came of it.
///
/// # Errors
/// Where a run fails or a bound is missed.
pub fn measure(workspace: &Workspace, options: &Options) -> Result<()> {
    match &options.bench {
        Bench::ThirdParty { rounds, steps } => third_party(workspace, *rounds, *steps),
        Bench::Hqq {
            python,
            rounds,
            rows,
            cols,
        } => {
            let sizes = [
                ("--rounds", rounds.to_string()),
                ("--rows", rows.to_string()),
            ];
            hqq(
                workspace,
                python,
                &[sizes.as_slice(), &[("--cols", cols.clone())]].concat(),
            )
        }
        Bench::Door => run(workspace
            .cargo()
            .args([
                "test",
                "--release",
                "--quiet",
                "--package",
                "espalier-tests",
            ])
            .args(["--test", "door_cost", "--", "--nocapture"])),
    }
}

/// Lets the library's Python drive our encoder, so that both see the same weights one after the other.
fn hqq(workspace: &Workspace, python: &Path, sizes: &[(&str, String)]) -> Result<()> {
    require(
        python,
        &workspace.root.join("tests/golden/scripts/requirements.txt"),
    )?;
    let example = ["--package", "espalier-tests", "--example", "hqq_encode"];
    run(workspace
        .cargo()
        .args(["build", "--release", "--quiet"])
        .args(example))?;
    let mut peer = Command::new(python);
    peer.arg(workspace.root.join("tests/peers/time_hqq.py"))
        .arg(workspace.target.join("release/examples/hqq_encode"))
        .arg(workspace.target.join("bench/hqq"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    for (name, value) in sizes {
        peer.arg(name).arg(value);
    }
    run(&mut peer)
}

/// A folder with a model of random weights, rows and plugins.
struct Ground<'a> {
    workspace: &'a Workspace,
    folder: PathBuf,
}

fn third_party(workspace: &Workspace, rounds: usize, steps: usize) -> Result<()> {
    ensure!(rounds > 0 && steps > 1, "a round and two steps at least");
    let ground = Ground {
        workspace,
        folder: workspace.target.join("bench"),
    };
    ground.prepare()?;
    let (mut nf4, mut linear4) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        // The first step touches memory for the first time.
        nf4.extend(ground.steps("nf4", steps)?.into_iter().skip(1));
        linear4.extend(ground.steps("linear4", steps)?.into_iter().skip(1));
    }
    let (ours, theirs) = (Times::of(nf4), Times::of(linear4));
    let ratio = theirs.median / ours.median;
    println!(
        "nf4 {:.4} s a step, linear4 {:.4} s: {ratio:.3} times nf4's (medians; at best {:.4} s and {:.4} s)",
        ours.median, theirs.median, ours.least, theirs.least
    );
    ensure!(
        ratio <= 1.0 + MOST_BEYOND,
        "linear4 takes {ratio:.3} times nf4's step, expected at most {}",
        1.0 + MOST_BEYOND
    );
    Ok(())
}

impl Ground<'_> {
    /// Builds host and plugin; writes config and rows, and lets the host make random weights.
    fn prepare(&self) -> Result<()> {
        let plugins = self.folder.join("plugins");
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder)?;
        }
        fs::create_dir_all(&plugins)?;
        let cargo = || self.workspace.cargo();
        run(cargo().args(["build", "--release", "--quiet", "--package", "espalier-cli"]))?;
        let samples = self.workspace.target.join("samples");
        run(cargo()
            .current_dir(self.workspace.root.join("tests/plugins"))
            .args([
                "build",
                "--release",
                "--quiet",
                "--locked",
                "--package",
                "linear4",
            ])
            .arg("--target-dir")
            .arg(&samples))?;
        let library = "liblinear4.so";
        fs::copy(samples.join("release").join(library), plugins.join(library))
            .context("no library was built")?;
        let config = json!({
            "model_type": "llama", "architectures": ["LlamaForCausalLM"],
            "vocab_size": 2048, "hidden_size": 1024, "intermediate_size": 2816,
            "num_hidden_layers": 3, "num_attention_heads": 16, "num_key_value_heads": 8,
            "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
            "hidden_act": "silu", "rope_theta": 10000.0, "initializer_range": 0.02,
            "bos_token_id": 0, "eos_token_id": 1
        });
        let empty = self.folder.join("empty");
        fs::create_dir(&empty)?;
        fs::write(empty.join("config.json"), config.to_string())?;
        let row = |row: u64| (0..128).map(move |at| 3 + (31 * row + 17 * at) % 2000);
        let row = |index| json!({"input_ids": row(index).collect::<Vec<u64>>()}).to_string();
        let rows: Vec<String> = (0..64).map(row).collect();
        fs::write(self.folder.join("rows.jsonl"), rows.join("\n") + "\n")?;
        let random = ["--set", "model.init=random", "--set", "run.max_steps=0"];
        self.host(&empty, "random", &random)
    }

    /// Trains in `out` with more arguments.
    fn host(&self, model: &Path, out: &str, more: &[&str]) -> Result<()> {
        let mut host = Command::new(self.workspace.target.join("release/host"));
        host.current_dir(&self.folder)
            .args(["train", "--quiet", "--data", "rows.jsonl", "--out", out])
            .args(["--set", "data.batch_size=1", "--plugin-dir", "plugins"])
            .args(["--set", "model.compute=f32", "--model"])
            .arg(model)
            .args(more);
        run(&mut host)
    }

    /// The times of the steps of a run, in seconds.
    fn steps(&self, quantizer: &str, steps: usize) -> Result<Vec<f64>> {
        let out = self.folder.join("run");
        if out.exists() {
            fs::remove_dir_all(&out)?;
        }
        let (plugins, steps) = (
            format!("{quantizer},lora"),
            format!("run.max_steps={steps}"),
        );
        let model = self.folder.join("random/model");
        self.host(&model, "run", &["--plugins", &plugins, "--set", &steps])?;
        let metrics = fs::read_to_string(out.join("metrics.jsonl"))?;
        let lines = metrics.lines().map(serde_json::from_str::<Value>);
        let lines = lines.collect::<Result<Vec<_>, _>>()?;
        let times = lines.iter().filter_map(|line| line["step_secs"].as_f64());
        Ok(times.collect())
    }
}

/// The times of one plugin's steps, in seconds.
struct Times {
    least: f64,
    median: f64,
}

impl Times {
    fn of(mut secs: Vec<f64>) -> Self {
        secs.sort_by(f64::total_cmp);
        Times {
            least: secs[0],
            median: secs[secs.len() / 2],
        }
    }
}
