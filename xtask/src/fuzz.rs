//! Coverage-guided random bytes for all file readers, and for plugins through their boundary.
//!
//! `tests/fuzz` is built with the address sanitizer and libFuzzer's counters. Both are part of a
//! stable toolchain, whose compiler accepts their flags under `RUSTC_BOOTSTRAP=1`.

mod build;
mod report;

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::workspace::Workspace;
use report::Outcome;

/// Most seconds of an input.
const SECONDS: u32 = 2;
/// The same for a chat template: the process that renders it has 3 s of processor time for each of
/// two conversations.
const TEMPLATE_SECONDS: u32 = 20;
/// Most MiB of the process.
const MEMORY_MIB: u32 = 512;
/// Most bytes of an input.
const MOST_BYTES: u32 = 32 << 10;
/// The sanitizer's options: freed memory is kept back for a while, but within the limit.
const SANITIZER: &str = "detect_leaks=0:quarantine_size_mb=32:abort_on_error=1";

/// Options of `cargo xtask fuzz`.
#[derive(Args)]
pub struct FuzzOptions {
    /// Seconds for each target
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// One target alone: the name of a folder of tests/fuzz/corpus
    #[arg(long, value_name = "TARGET")]
    only: Option<String>,
    /// Run the target on this file only: the input of a crash
    #[arg(long, value_name = "FILE", requires = "only")]
    repeat: Option<PathBuf>,
}

/// Builds the targets, runs each for its time and prints the results.
///
/// # Errors
/// Where the toolchain lacks something, with the package to install; where a target crashed, took
/// too long or too much memory.
pub fn check(workspace: &Workspace, options: &FuzzOptions) -> Result<()> {
    let names = targets(workspace)?;
    let chosen: Vec<&String> = match &options.only {
        None => names.iter().collect(),
        Some(only) => names.iter().filter(|name| *name == only).collect(),
    };
    if chosen.is_empty() {
        let asked = options.only.as_deref().unwrap_or_default();
        bail!("no target `{asked}`; expected one of {}", names.join(", "));
    }
    let program = build::build(workspace)?;
    let place = FuzzFolders::make(workspace)?;
    if let (Some(file), [name]) = (&options.repeat, chosen.as_slice()) {
        let status = place.command(&program, name).arg(file).status()?;
        if !status.success() {
            bail!("target {name} failed on {}: {status}", file.display());
        }
        println!("target {name} takes {} as it should", file.display());
        return Ok(());
    }
    let mut outcomes = Vec::new();
    for name in chosen {
        eprintln!("{name}: {} s", options.seconds);
        outcomes.push(run(workspace, &program, &place, name, options.seconds)?);
    }
    print!("{}", report::table(&outcomes));
    match outcomes.iter().filter(|one| one.failed()).count() {
        0 => Ok(()),
        failed => bail!("{failed} of {} targets failed", outcomes.len()),
    }
}

/// Names of all targets: each has a folder of initial inputs.
fn targets(workspace: &Workspace) -> Result<Vec<String>> {
    let folder = workspace.root.join("tests/fuzz/corpus");
    let entries =
        fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

/// Folders of the inputs and of the targets' files.
struct FuzzFolders {
    found: PathBuf,
    scratch: PathBuf,
}

impl FuzzFolders {
    fn make(workspace: &Workspace) -> Result<Self> {
        // Every input is a file: in memory, where the system has such a folder.
        let memory = Path::new("/dev/shm");
        let above = if memory.is_dir() {
            memory.to_owned()
        } else {
            env::temp_dir()
        };
        let scratch = above.join(format!("espalier-fuzz-{}", std::process::id()));
        fs::create_dir_all(&scratch)
            .with_context(|| format!("cannot make {}", scratch.display()))?;
        let found = build::target(workspace).join("found");
        Ok(FuzzFolders { found, scratch })
    }

    /// The program's command line for the target `name` within the limits.
    fn command(&self, program: &Path, name: &str) -> Command {
        let seconds = match name {
            "chat-template" => TEMPLATE_SECONDS,
            _ => SECONDS,
        };
        let mut command = Command::new(program);
        command
            .env("ESPALIER_FUZZ_TARGET", name)
            .env("ASAN_OPTIONS", SANITIZER)
            .env("TMPDIR", &self.scratch)
            .arg(format!("-timeout={seconds}"))
            .arg(format!("-rss_limit_mb={MEMORY_MIB}"));
        command
    }
}

impl Drop for FuzzFolders {
    fn drop(&mut self) {
        // A crashed target leaves its files; those that cannot be removed are in memory.
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

/// Runs one target from the committed inputs and those that earlier runs found.
fn run(
    workspace: &Workspace,
    program: &Path,
    place: &FuzzFolders,
    name: &str,
    seconds: u32,
) -> Result<Outcome> {
    let (corpus, crashes) = (
        place.found.join("corpus").join(name),
        place.found.join("crashes"),
    );
    for folder in [&corpus, &crashes] {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let log = place.found.join(format!("{name}.log"));
    let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let started = Instant::now();
    let status = place
        .command(program, name)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={MOST_BYTES}"))
        .arg(format!("-artifact_prefix={}/{name}-", crashes.display()))
        .arg("-print_final_stats=1")
        .args([
            &corpus,
            &workspace.root.join("tests/fuzz/corpus").join(name),
        ])
        .stdout(Stdio::null())
        .stderr(file)
        .status()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let text = fs::read(&log).with_context(|| format!("cannot read {}", log.display()))?;
    let text = String::from_utf8_lossy(&text);
    Ok(Outcome::read(
        name,
        &text,
        (status.success(), started.elapsed()),
        &log,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_initial_inputs() {
        let workspace = Workspace::load().expect("this one");
        let main = workspace.root.join("tests/fuzz/src/main.rs");
        let main = fs::read_to_string(main).expect("the targets");
        let list = main
            .split("const TARGETS")
            .nth(1)
            .expect("a list of targets");
        let list = list.split("];").next().expect("its end");
        let names = list
            .lines()
            .filter_map(|line| line.trim().strip_prefix("(\""));
        let names: Vec<&str> = names.filter_map(|line| line.split('"').next()).collect();
        assert!(names.len() > 10, "{names:?}");
        assert_eq!(targets(&workspace).expect("folders"), names);
        for name in names {
            let folder = workspace.root.join("tests/fuzz/corpus").join(name);
            assert!(
                folder.read_dir().expect("a folder").next().is_some(),
                "{name}"
            );
        }
    }
}
