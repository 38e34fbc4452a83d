//! Trainings that must agree: streamed from the host's memory and resident, on the card and on the
//! processor.

use std::path::Path;

use anyhow::{Result, ensure};
use espalier_tests_gpu::Llama;
use serde_json::json;

use crate::host_training::{HostTraining, numbers, succeed};
use crate::rows::Rows;
use crate::setting::Setting;
use crate::step::watched;

/// Largest relative difference of a step's loss, and of its gradients' norm, between two orders of
/// sums in f32, as in the trainings over the mock libraries.
const BOUND: f64 = 1e-4;

/// Steps of the quickstart that are compared.
const QUICKSTART_STEPS: u64 = 10;

/// Compares a training whose weights are streamed with one whose weights stay on the card, in f32
/// and bf16.
///
/// # Errors
/// Where a run fails, or losses differ by more than the bound.
pub fn streamed(setting: &Setting, rows: &mut Rows) -> Result<()> {
    let folder = setting.scratch("streamed")?;
    let (model, sequence, computes): (_, _, &[&str]) = if setting.is_small {
        (Llama::TINY, 8, &["f32"])
    } else {
        (Llama::SMALL, 64, &["f32", "bf16"])
    };
    let mut failed = Vec::new();
    for compute in computes {
        let training = HostTraining {
            folder: &folder,
            model,
            compute,
            steps: if setting.is_small { 2 } else { 6 },
            batch: 2,
            micro_batch: 2,
            sequence,
        };
        training.make_inputs()?;
        let run = |name: &str, plugins: &str, more: &[&str]| -> Result<[Vec<f64>; 2]> {
            let words = [&["--backend", "cuda", "--plugins", plugins], more].concat();
            let name = format!("{name}-{compute}");
            steps(&training.run(setting, &name, &words)?)
        };
        let offload = ["--set", "sharding.fsdp.offload=params+optimizer"];
        let resident = run("resident", "nf4,lora,single", &[])?;
        let streamed = run("streamed", "nf4,lora,fsdp", &offload)?;
        let apart = largest_difference(&streamed, &resident)?;
        rows.add(&json!({
            "compared": "streamed with resident",
            "compute": compute,
            "same_bits": streamed == resident,
            "relative_difference": apart,
            "losses": resident[0],
        }))?;
        if apart > BOUND {
            failed.push(format!(
                "{compute}: losses or norms differ by {apart:e} of them"
            ));
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

/// Compares a training of one rank that NCCL joins with one without it. Two ranks of one card are
/// refused before NCCL 2.30, so the ranks' sums are compared over the mock library alone.
///
/// # Errors
/// Where a run fails, as it does without NCCL, or the losses or norms are not the same.
pub fn nccl(setting: &Setting, rows: &mut Rows) -> Result<()> {
    let folder = setting.scratch("nccl")?;
    let (model, sequence) = if setting.is_small {
        (Llama::TINY, 8)
    } else {
        (Llama::SMALL, 64)
    };
    let training = HostTraining {
        folder: &folder,
        model,
        compute: "f32",
        steps: 2,
        batch: 2,
        micro_batch: 2,
        sequence,
    };
    training.make_inputs()?;
    let run = |name: &str, plugins: &str| -> Result<([Vec<f64>; 2], u64)> {
        let words = ["--backend", "cuda", "--ranks", "1", "--plugins", plugins];
        let (run, peak_bytes) = watched(setting, || training.run(setting, name, &words))?;
        Ok((steps(&run)?, peak_bytes))
    };
    let (alone, alone_bytes) = run("alone", "nf4,lora,fsdp")?;
    let (joined, joined_bytes) = run("joined", "nf4,lora,fsdp,nccl")?;
    rows.add(&json!({
        "compared": "one rank with and without nccl",
        "same_bits": joined == alone,
        "losses": joined[0],
        "peak_device_bytes": joined_bytes,
        "peak_device_bytes_without": alone_bytes,
    }))?;
    ensure!(joined == alone, "losses or norms are not the same");
    Ok(())
}

/// Compares the quickstart's first steps on the card with those on `cpu`.
///
/// # Errors
/// Where a run fails, or losses differ by more than the bound.
pub fn losses(setting: &Setting, rows: &mut Rows) -> Result<()> {
    let folder = setting.scratch("losses")?;
    let mut found = Vec::new();
    for backend in ["cpu", "cuda"] {
        let out = folder.join(backend);
        if setting.is_small {
            let training = HostTraining {
                folder: &folder,
                model: Llama::TINY,
                compute: "f32",
                steps: 2,
                batch: 2,
                micro_batch: 2,
                sequence: 8,
            };
            training.make_inputs()?;
            let words = ["--backend", backend, "--plugins", "nf4,lora"];
            training.run(setting, backend, &words)?;
        } else {
            let mut host = setting.program("host")?;
            host.args(["train", "--quiet", "--config", "configs/quickstart.toml"]);
            host.args(["--backend", backend, "--out"]).arg(&out);
            for value in [
                format!("run.max_steps={QUICKSTART_STEPS}"),
                "run.eval_answers=1".to_owned(),
            ] {
                host.args(["--set", &value]);
            }
            succeed(&mut host)?;
        }
        found.push(steps(&out)?);
    }
    let [cpu, cuda] = &found[..] else {
        unreachable!("a run of each backend")
    };
    let apart = largest_difference(cuda, cpu)?;
    rows.add(&json!({
        "compared": "cuda with cpu",
        "relative_difference": apart,
        "cpu": cpu[0],
        "cuda": cuda[0],
    }))?;
    ensure!(
        apart <= BOUND,
        "losses or norms differ by {apart:e} of them, expected at most {BOUND:e}"
    );
    Ok(())
}

/// The losses of a run's steps, and their gradients' norms.
///
/// # Errors
/// Where the run's metrics have none.
pub fn steps(run: &Path) -> Result<[Vec<f64>; 2]> {
    Ok([numbers(run, "loss")?, numbers(run, "grad_norm")?])
}

/// The largest difference of a number, relative to the expected one.
///
/// # Errors
/// Where the runs have different numbers of steps.
pub fn largest_difference(found: &[Vec<f64>; 2], expected: &[Vec<f64>; 2]) -> Result<f64> {
    let lengths = [found, expected].map(|run| [run[0].len(), run[1].len()]);
    let [found_steps, expected_steps] = lengths;
    ensure!(
        found_steps == expected_steps,
        "{found_steps:?} losses and norms, expected {expected_steps:?}"
    );
    let apart = found.iter().flatten().zip(expected.iter().flatten());
    let apart = apart.map(|(found, expected)| (found - expected).abs() / expected.abs());
    // A number that is not finite is the largest.
    Ok(apart.max_by(f64::total_cmp).unwrap_or(f64::INFINITY))
}
