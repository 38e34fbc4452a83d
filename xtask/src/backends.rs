//! The backends on other libraries -> their plugins, built; their suites; runs compared with `cpu`.

mod library;
mod training;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use clap::Args;

pub use library::{Library, build_all};

use crate::workspace::{Workspace, run};

/// Options of `cargo xtask backends`.
#[derive(Args)]
pub struct BackendsOptions {
    /// Only these backends
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Library::ALL)]
    only: Vec<Library>,
    /// Build the plugins, and test nothing
    #[arg(long)]
    build: bool,
    /// Steps of the trainings that are compared with `cpu`
    #[arg(long, default_value_t = 12)]
    steps: u64,
    /// Random cases of ops that the backends and `cpu` compute, and compare
    #[arg(long, default_value_t = 10_000)]
    cases: u64,
}

/// The tests with the peers' golden data, whose models a backend trains and evaluates.
pub const GOLDEN: [&str; 11] = [
    "bnb_golden",
    "dora",
    "families_golden",
    "hqq_golden",
    "ia3",
    "llama_bf16",
    "llama_golden",
    "lora",
    "optimizers",
    "split",
    "vera",
];

/// Builds the plugins into the target directory's `backends`. Runs their tests, with the kit of
/// ops, and `host plugins check`. Compares trainings with those on `cpu`, and swaps backends within
/// a run.
///
/// # Errors
/// Where a library is missing, a build fails, a check fails or losses differ.
pub fn check(workspace: &Workspace, options: &BackendsOptions) -> Result<()> {
    let folder = build_all(workspace, &options.only)?;
    if options.build {
        return Ok(());
    }
    for library in &options.only {
        println!("== {library}: tests and the kit of ops");
        run(&mut library.tests(workspace)?)?;
    }
    let host = host(workspace)?;
    for library in &options.only {
        println!("== {library}: host plugins check");
        run(command(workspace, &host, &folder)
            .args(["plugins", "check"])
            .arg(folder.join(library.file())))?;
    }
    doctor(workspace, &host, &folder, &options.only)?;
    for library in &options.only {
        println!("== {library}: golden data");
        golden(workspace, *library, &folder)?;
    }
    println!("== random cases of ops");
    random_cases(workspace, &options.only, &folder, options.cases)?;
    training::compare(workspace, &host, &folder, &options.only, options.steps)?;
    training::swap(workspace, &host, &folder, &options.only)
}

/// Asks `host doctor` for the backends' devices, which must compute, and for the bytes that a
/// product on candle copies.
fn doctor(workspace: &Workspace, host: &Path, folder: &Path, libraries: &[Library]) -> Result<()> {
    println!("== host doctor");
    let output = command(workspace, host, folder).arg("doctor").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    for library in libraries {
        ensure!(
            text.contains(&format!("(backend {library}): "))
                && !text.contains(&format!("{library} cannot compute")),
            "`host doctor` has no device of {library} that computes"
        );
    }
    let copied = "backend `candle` copied 5.00 MiB to tensors and 1.00 MiB from them";
    ensure!(
        !libraries.contains(&Library::Candle) || text.contains(copied),
        "`host doctor` does not say: {copied}"
    );
    Ok(())
}

/// Runs the tests with golden data on a backend.
fn golden(workspace: &Workspace, library: Library, folder: &Path) -> Result<()> {
    let mut tests = workspace.cargo();
    // With the workspace's features, so that crates are not built twice.
    tests.args(["test", "--release", "--quiet", "--workspace"]);
    for test in GOLDEN {
        tests.args(["--test", test]);
    }
    tests.env("ESPALIER_TEST_BACKEND", library.to_string());
    run(finding(&mut tests, workspace, folder))
}

/// Compares the results of `cpu` and the backends on random cases of every op.
fn random_cases(
    workspace: &Workspace,
    libraries: &[Library],
    folder: &Path,
    cases: u64,
) -> Result<()> {
    let names: Vec<String> = libraries.iter().map(Library::to_string).collect();
    let mut fuzz = workspace.cargo();
    fuzz.args(["run", "--release", "--quiet", "--package", "espalier-tests"]);
    fuzz.args(["--example", "op_fuzz", "--"]);
    fuzz.args(["--backends", &format!("cpu,{}", names.join(","))]);
    fuzz.args(["--seed", "1", "--cases", &cases.to_string()]);
    fuzz.arg("--plugin-dir").arg(folder);
    run(finding(&mut fuzz, workspace, folder))
}

/// Builds the host.
///
/// # Errors
/// Where the build fails.
pub fn host(workspace: &Workspace) -> Result<PathBuf> {
    run(workspace
        .cargo()
        .args(["build", "--release", "--quiet", "--bin", "host"]))?;
    let name = format!("release/host{}", std::env::consts::EXE_SUFFIX);
    Ok(workspace.target.join(name))
}

/// A command of the host that finds the plugins in `folder`, and libtorch where there is one.
pub fn command(workspace: &Workspace, host: &Path, folder: &Path) -> Command {
    let mut command = Command::new(host);
    command.current_dir(&workspace.root);
    finding(&mut command, workspace, folder);
    command
}

/// The command, which finds the plugins in `folder`, and libtorch where there is one.
fn finding<'c>(command: &'c mut Command, workspace: &Workspace, folder: &Path) -> &'c mut Command {
    command.env("HOST_PLUGIN_PATH", folder);
    if let Ok(libtorch) = crate::libtorch::find(workspace) {
        command.env("LIBTORCH", libtorch);
    }
    command
}
