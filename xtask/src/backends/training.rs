//! Short trainings of the quickstart on each backend -> how far their losses are from those on
//! `cpu`; and one run that goes from backend to backend.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::{Library, command};
use crate::metrics;
use crate::workspace::{Workspace, run};

/// Largest relative difference of a step's loss from that on `cpu`, by compute dtype.
///
/// f32: sums in another order, which AdamW's steps enlarge; found: up to 1e-7. bf16: values between
/// products are rounded at other places, by 2^-9 each; found: up to 8e-4 in twelve steps.
const BOUNDS: [(&str, f64); 2] = [("f32", 1e-5), ("bf16", 5e-3)];

/// Longest wait for a step of the run that is swapped.
const PATIENCE: Duration = Duration::from_secs(300);

/// Trains the quickstart for `steps` steps on `cpu` and on each of `libraries`, in f32 and bf16.
///
/// # Errors
/// Where a run fails or a loss differs by more than its bound.
pub fn compare(
    workspace: &Workspace,
    host: &Path,
    plugins: &Path,
    libraries: &[Library],
    steps: u64,
) -> Result<()> {
    let mut apart = Vec::new();
    for (dtype, bound) in BOUNDS {
        let train = |backend: &str| -> Result<Vec<f64>> {
            let out = cleared(workspace, &format!("{backend}-{dtype}"))?;
            let mut host = command(workspace, host, plugins);
            quickstart(&mut host, &out, steps);
            let compute = format!("model.compute={dtype}");
            run(host.args(["--backend", backend, "--set", &compute]))?;
            metrics::numbers(&out, "loss")
        };
        let ours = train("cpu")?;
        for library in libraries {
            let theirs = train(&library.to_string())?;
            let difference = largest_difference(&ours, &theirs);
            println!(
                "quickstart {dtype}, {steps} steps: losses {:.5} to {:.5} on cpu, {:.5} to {:.5} on {library}; \
                 largest relative difference {difference:.1e}, bound {bound:.0e}",
                ours[0],
                ours[ours.len() - 1],
                theirs[0],
                theirs[theirs.len() - 1]
            );
            // NaN is above every bound.
            if difference.total_cmp(&bound).is_gt() || ours.len() != theirs.len() {
                apart.push(format!("{library} {dtype}: {difference:.1e}"));
            }
        }
    }
    ensure!(apart.is_empty(), "the losses differ: {}", apart.join("; "));
    Ok(())
}

/// Trains the quickstart and swaps `cpu` for each of `libraries` in turn and back. The losses must
/// be those of a run without swaps.
///
/// # Errors
/// Where a run or a swap fails, or a loss differs by more than its bound.
pub fn swap(
    workspace: &Workspace,
    host: &Path,
    plugins: &Path,
    libraries: &[Library],
) -> Result<()> {
    let (every, names) = (3, libraries.iter().map(Library::to_string));
    let stops: Vec<String> = names.chain(["cpu".to_owned()]).collect();
    let steps = every * (stops.len() as u64 + 1);
    let (dtype, bound) = BOUNDS[0];
    let out = cleared(workspace, "without-swaps")?;
    let compute = format!("model.compute={dtype}");
    let on_cpu = ["--backend", "cpu", "--set", &compute];
    let mut alone = command(workspace, host, plugins);
    quickstart(&mut alone, &out, steps);
    run(alone.args(on_cpu))?;
    let expected = metrics::numbers(&out, "loss")?;

    let out = cleared(workspace, "with-swaps")?;
    let mut swapped = command(workspace, host, plugins);
    quickstart(&mut swapped, &out, steps);
    let job = Job(swapped.args(on_cpu).spawn()?);
    until(&out.join("metrics.jsonl"))?;
    for (stop, name) in (1..).zip(&stops) {
        let before = (stop * every + 1).to_string();
        let mut ask = command(workspace, host, plugins);
        ask.args(["swap", "--run"]).arg(&out);
        ask.args([&format!("backend={name}"), "--before-step", &before]);
        run(ask.stdout(Stdio::null()))?;
        println!("swapped backend {name} before step {before}");
    }
    job.end()?;
    let found = metrics::numbers(&out, "loss")?;
    let difference = largest_difference(&expected, &found);
    println!(
        "one run on cpu -> {}, {every} steps each, {dtype}: largest relative difference of a loss {difference:.1e} \
         from the run without swaps, bound {bound:.0e}",
        stops.join(" -> ")
    );
    ensure!(
        difference.total_cmp(&bound).is_le() && expected.len() == found.len(),
        "losses {found:?} with swaps, {expected:?} without"
    );
    Ok(())
}

/// A run in the background, which ends with this.
struct Job(Child);

impl Job {
    fn end(mut self) -> Result<()> {
        let status = self.0.wait()?;
        ensure!(status.success(), "the swapped run failed with {status}");
        Ok(())
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // It has ended already, or is of no use without its swaps.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for a file.
fn until(file: &Path) -> Result<()> {
    let begin = Instant::now();
    while !file.exists() {
        if begin.elapsed() > PATIENCE {
            bail!("no {} within {PATIENCE:?}", file.display());
        }
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A short training of the quickstart in `out`, as its config says, without evaluations.
fn quickstart(host: &mut Command, out: &Path, steps: u64) {
    host.args(["train", "--quiet", "--plugins", "nf4,lora"])
        .args(["--model", "configs/quickstart/model"])
        .args(["--data", "configs/quickstart/data/questions.jsonl"])
        .arg("--out")
        .arg(out)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    for setting in [
        format!("run.max_steps={steps}"),
        "run.seed=42".to_owned(),
        "data.max_seq_len=128".to_owned(),
        "data.batch_size=32".to_owned(),
        "data.micro_batch=32".to_owned(),
        "optim.learning_rate=2e-3".to_owned(),
        "optim.warmup_steps=4".to_owned(),
        "quantizer.nf4.double_quant=true".to_owned(),
        "adapter.lora.rank=32".to_owned(),
        "adapter.lora.alpha=64".to_owned(),
    ] {
        host.args(["--set", &setting]);
    }
}

/// A folder for a run, which does not exist.
fn cleared(workspace: &Workspace, name: &str) -> Result<PathBuf> {
    let out = workspace.target.join("backends-runs").join(name);
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("cannot clear {}", out.display()))?;
    }
    Ok(out)
}

/// The largest relative difference of two runs' losses. NaN where one has it.
fn largest_difference(ours: &[f64], theirs: &[f64]) -> f64 {
    let pairs = ours.iter().zip(theirs);
    let differences = pairs.map(|(a, b)| (a - b).abs() / a.abs());
    differences.max_by(f64::total_cmp).unwrap_or(f64::NAN)
}
