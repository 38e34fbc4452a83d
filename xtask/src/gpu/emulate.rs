//! Runs the tests of the backend `cuda` over the mock libraries in all orders.

use std::process::Command;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};

use super::pack;
use crate::backends::GOLDEN;
use crate::workspace::{Workspace, run};

/// Orders of a block's threads.
const THREADS: [&str; 4] = ["forward", "backward", "shuffled", "greedy"];
/// Orders of the streams' work; a number is the seed of one by chance.
const STREAMS: [&str; 3] = ["late", "early", "17"];

/// Bytes of the mock card's memory, for the golden models.
const MEMORY: &str = "4294967296";

/// A part of `cargo xtask gpu emulate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The kit of ops and the decoders of formats, in four orders of threads and three of streams.
    Kit,
    /// Short trainings, resumed runs and evaluations, in three orders of streams.
    Trainings,
    /// The golden data of the peers.
    Golden,
    /// What `gpu pack` packs, with small shapes.
    Pack,
}

/// Options of `cargo xtask gpu emulate`.
#[derive(Args)]
pub struct EmulateOptions {
    /// The parts to run
    #[arg(long, value_name = "PARTS", value_delimiter = ',', value_enum, default_values_t = [Part::Kit, Part::Trainings, Part::Golden, Part::Pack])]
    only: Vec<Part>,
}

/// Runs the parts.
///
/// # Errors
/// Where one fails; the others still run.
pub fn check(workspace: &Workspace, options: &EmulateOptions) -> Result<()> {
    let mut failed = Vec::new();
    for part in &options.only {
        let outcome = match part {
            Part::Kit => kit(workspace),
            Part::Trainings => trainings(workspace),
            Part::Golden => golden(workspace),
            Part::Pack => rehearse(workspace),
        };
        if let Err(why) = outcome {
            failed.push(format!("{part:?}: {why}"));
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

fn kit(workspace: &Workspace) -> Result<()> {
    let mut failed = Vec::new();
    for threads in THREADS {
        for streams in STREAMS {
            println!("kit of ops: threads {threads}, streams {streams}");
            let mut test = tests(workspace, &["kit", "decoding", "steps"]);
            test.env("MOCK_CUDA_THREADS", threads);
            test.env("ESPALIER_TESTS_ALL_FORMATS", "1");
            if let Err(why) = run(test.env("MOCK_CUDA_ORDER", streams)) {
                failed.push(format!("{threads}, {streams}: {why}"));
            }
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

fn trainings(workspace: &Workspace) -> Result<()> {
    let mut host = workspace.cargo();
    host.args(["build", "--release", "--quiet", "--workspace"]);
    run(host.args(["--bin", "host"]))?;
    println!("trainings: streams {}", STREAMS.join(", "));
    let mut test = tests(
        workspace,
        &["training", "commands", "nccl", "nccl_processes"],
    );
    test.env("ESPALIER_TESTS_ALL_TRAININGS", "1");
    run(test.args(["--", "--nocapture"]))
}

/// Runs the tests that compare with the peers' numbers, over mock libraries that the program finds
/// by their names.
fn golden(workspace: &Workspace) -> Result<()> {
    let folder = workspace.target.join("gpu-mocks");
    let mut built = workspace.cargo();
    // With the workspace's features, as the tests below.
    built.args(["build", "--release", "--quiet", "--workspace"]);
    run(built.args(["--bin", "mock_libraries"]))?;
    let mut mocks = Command::new(workspace.target.join("release/mock_libraries"));
    run(mocks.arg(&folder))?;
    println!("golden data: {}", GOLDEN.join(", "));
    let mut test = tests(workspace, &GOLDEN);
    test.env("LD_LIBRARY_PATH", &folder);
    test.env("XDG_CACHE_HOME", folder.join("cache"));
    test.env("MOCK_CUDA_MEMORY", MEMORY);
    run(test.env("ESPALIER_TEST_BACKEND", "cuda"))
}

fn rehearse(workspace: &Workspace) -> Result<()> {
    println!("the pack: runs 1 and 2 with small shapes");
    let mut test = tests(workspace, &["rehearsal"]);
    let staged = pack::stage(workspace, &pack::PackOptions::default())?;
    run(test.env("ESPALIER_TESTS_PACK", staged))
}

/// The command that runs test programs.
fn tests(workspace: &Workspace, names: &[&str]) -> Command {
    let mut cargo = workspace.cargo();
    // With the workspace's features, so that crates are not built twice.
    cargo.args(["test", "--release", "--quiet", "--no-fail-fast"]);
    cargo.arg("--workspace");
    for name in names {
        cargo.args(["--test", name]);
    }
    cargo
}
