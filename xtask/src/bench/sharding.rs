//! The cost of sharding weights that would fit whole: `fsdp` beside `ddp`.

use anyhow::{Result, ensure};

use super::setup::BenchSetup;
use crate::workspace::Workspace;

/// Least speed of `fsdp`, as a share of `ddp`'s tokens per second.
const LEAST_SHARE: f64 = 0.95;

/// Trains a packed model with adapters under both strategies, alternating, and prints the ratio of
/// their speeds.
///
/// # Errors
/// Where a run fails, or `fsdp` is slower than the bound.
pub fn measure(workspace: &Workspace, rounds: usize, steps: usize, ranks: u32) -> Result<()> {
    ensure!(
        rounds > 0 && steps > 1 && ranks > 1,
        "a round, two steps and two ranks at least"
    );
    let setup = BenchSetup::prepare(workspace, &[])?;
    let (ranks, rows) = (ranks.to_string(), format!("data.batch_size={}", 2 * ranks));
    let plugins = ["nf4,lora,ddp", "nf4,lora,fsdp"];
    let run = |plugins| ["--ranks", &ranks, "--set", &rows, "--plugins", plugins];
    let [ddp, fsdp] = plugins.map(run);
    let [ddp, fsdp] = setup.in_turns([&ddp, &fsdp], rounds, steps)?;
    let share = ddp.median / fsdp.median;
    println!(
        "{ranks} ranks: ddp {:.4} s a step, fsdp {:.4} s: {share:.3} of ddp's tokens a second (medians; at best {:.4} s \
         and {:.4} s)",
        ddp.median, fsdp.median, ddp.least, fsdp.least
    );
    ensure!(
        share >= LEAST_SHARE,
        "fsdp reaches {share:.3} of ddp's speed, expected at least {LEAST_SHARE}"
    );
    Ok(())
}
