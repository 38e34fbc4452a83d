//! The developer's commands: `cargo xtask NAME` runs builds, checks and comparisons.
#![allow(clippy::print_stdout, clippy::print_stderr)] // A developer's tool prints.

mod abi;
mod archive;
mod backends;
mod bench;
mod big_data;
mod dist;
mod fuzz;
mod golden;
mod gpu;
mod interval_coverage;
mod kills;
mod libtorch;
mod median;
mod metrics;
mod newcomer;
mod peers;
mod plugins;
mod quickstart;
mod symbolize;
mod test_dylibs;
mod tidy;
mod torture;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use workspace::Workspace;

/// Tasks that cargo has no command for.
#[derive(Parser)]
#[command(name = "cargo xtask", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build every shipped plugin as a shared library and gather them in one folder
    Plugins(plugins::PluginsOptions),
    /// Run the suite with a host that has no plugin linked into it
    TestDylibs(test_dylibs::TestDylibsOptions),
    /// Print the boundary between host and plugins; fail where it changed without a version
    Abi(abi::AbiOptions),
    /// Pack host, plugins, configs and docs into one archive that runs without Rust
    Dist(dist::DistOptions),
    /// Install the wheel in a clean environment and walk the newcomer's path with it, to PEFT
    Newcomer(newcomer::NewcomerOptions),
    /// Check form, sizes, names and the arrows between crates
    Tidy(tidy::TidyOptions),
    /// Run the whole quickstart and compare its answers to held-out questions with a bound
    Quickstart(quickstart::QuickstartOptions),
    /// Train hundreds of runs that differ in their seeds alone and count how often they look
    /// different
    IntervalCoverage(interval_coverage::IntervalCoverageOptions),
    /// Kill ranks of running trainings; require that the others end in time and the runs resume
    Kills(kills::KillsOptions),
    /// Print functions and lines of the trace in the last line of a crash
    Symbolize(symbolize::SymbolizeOptions),
    /// Attack the program in every way of the suite; print the results
    Torture(torture::TortureOptions),
    /// Feed coverage-guided random bytes to file readers and to plugins, under the address
    /// sanitizer
    Fuzz(fuzz::FuzzOptions),
    /// Compare with the real peers (transformers, peft, bitsandbytes)
    Peers(peers::PeersOptions),
    /// Time runs side by side: plugins of third parties beside the shipped ones
    Bench(bench::BenchOptions),
    /// Write a JSONL file of a given size
    BigData(big_data::BigDataOptions),
    /// Build the backends on libtorch and on candle; run their suites; compare trainings on them
    Backends(backends::BackendsOptions),
    /// Download the libtorch that the backend `tch` computes with, from PyPI
    SetupLibtorch(libtorch::SetupLibtorchOptions),
    /// Check the backend `cuda` without a card, and pack what measures it on one
    Gpu(gpu::GpuOptions),
    /// Make the golden data again with the peers and compare it with the committed
    Golden(golden::GoldenOptions),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = Workspace::load().and_then(|workspace| match arguments.command {
        Command::Plugins(options) => plugins::gather(&workspace, &options),
        Command::TestDylibs(options) => test_dylibs::check(&workspace, &options),
        Command::Abi(options) => abi::check(&workspace, &options),
        Command::Dist(options) => dist::pack(&workspace, &options).map(drop),
        Command::Newcomer(options) => newcomer::check(&workspace, &options),
        Command::Tidy(options) => tidy::check(&workspace, &options),
        Command::Quickstart(options) => quickstart::check(&workspace, &options),
        Command::IntervalCoverage(options) => interval_coverage::check(&workspace, &options),
        Command::Kills(options) => kills::check(&workspace, &options),
        Command::Symbolize(options) => symbolize::show(&workspace, &options),
        Command::Torture(options) => torture::check(&workspace, &options),
        Command::Fuzz(options) => fuzz::check(&workspace, &options),
        Command::Peers(options) => peers::compare(&workspace, &options),
        Command::Bench(options) => bench::measure(&workspace, &options),
        Command::BigData(options) => big_data::write(&options),
        Command::Backends(options) => backends::check(&workspace, &options),
        Command::SetupLibtorch(options) => libtorch::set_up(&workspace, &options),
        Command::Gpu(options) => gpu::check(&workspace, &options),
        Command::Golden(options) => golden::regenerate(&workspace, &options),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
