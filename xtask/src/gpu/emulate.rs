//! Runs the tests of the backend `cuda` over the mock libraries in all orders.

use anyhow::{Result, ensure};
use clap::Args;

use crate::workspace::{Workspace, run};

/// Orders of a block's threads.
const THREADS: [&str; 4] = ["forward", "backward", "shuffled", "greedy"];
/// Orders of the streams' work; a number is the seed of one by chance.
const STREAMS: [&str; 3] = ["late", "early", "17"];

/// Options of `cargo xtask gpu emulate`.
#[derive(Args)]
pub struct EmulateOptions {
    /// Run the kit of ops alone
    #[arg(long, conflicts_with = "trainings")]
    kit: bool,
    /// Run the trainings alone
    #[arg(long)]
    trainings: bool,
}

/// Runs the kit of ops in four orders of threads and three of streams, and short trainings in the
/// three of streams.
///
/// # Errors
/// Where one fails; the others still run.
pub fn check(workspace: &Workspace, options: &EmulateOptions) -> Result<()> {
    let mut failed = Vec::new();
    if !options.trainings {
        for threads in THREADS {
            for streams in STREAMS {
                println!("kit of ops: threads {threads}, streams {streams}");
                let mut test = tests(workspace, "kit");
                test.env("MOCK_CUDA_THREADS", threads);
                if let Err(why) = run(test.env("MOCK_CUDA_ORDER", streams)) {
                    failed.push(format!("kit of ops, {threads}, {streams}: {why}"));
                }
            }
        }
    }
    if !options.kit {
        let mut host = workspace.cargo();
        host.args(["build", "--release", "--quiet", "--workspace"]);
        run(host.args(["--bin", "host"]))?;
        println!("trainings: streams {}", STREAMS.join(", "));
        let mut test = tests(workspace, "training");
        test.env("ESPALIER_TESTS_ALL_TRAININGS", "1");
        test.args(["--", "--nocapture"]);
        if let Err(why) = run(&mut test) {
            failed.push(format!("trainings: {why}"));
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

/// The command that runs a test program of `tests/gpu`.
fn tests(workspace: &Workspace, name: &str) -> std::process::Command {
    let mut cargo = workspace.cargo();
    // With the workspace's features, so that crates are not built twice.
    cargo.args(["test", "--release", "--quiet", "--workspace"]);
    cargo.args(["--test", name]);
    cargo
}
