//! Checks the house style; every finding is printed, any finding fails.

mod arrows;
mod circles;
mod documents;
mod own_arithmetic;
mod repository;
mod rust_crate;
mod sources;
mod type_names;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};
use clap::Args;

use crate::workspace::{Workspace, run};

/// Options of `cargo xtask tidy`.
#[derive(Args)]
pub struct TidyOptions {
    /// Leave out clippy, which compiles the workspace
    #[arg(long)]
    fast: bool,
}

/// The findings of the checks.
#[derive(Default)]
pub struct Findings {
    problems: Vec<String>,
    notes: Vec<String>,
}

impl Findings {
    /// Adds a finding that must be fixed.
    pub fn problem(&mut self, text: impl Into<String>) {
        self.problems.push(text.into());
    }

    /// Adds a note.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// What the checks that only read files find.
    fn of_tree(workspace: &Workspace, files: &[PathBuf]) -> Result<Self> {
        let mut findings = Findings::default();
        sources::check(workspace, files, &mut findings)?;
        documents::check(workspace, files, &mut findings)?;
        repository::check(workspace, files, &mut findings)?;
        arrows::check(workspace, &mut findings)?;
        circles::check(workspace, &mut findings)?;
        type_names::check(workspace, &mut findings)?;
        Ok(findings)
    }
}

/// Runs all checks.
///
/// # Errors
/// Where a check finds a problem or cannot run.
pub fn check(workspace: &Workspace, options: &TidyOptions) -> Result<()> {
    let files = workspace.files()?;
    let mut findings = Findings::of_tree(workspace, &files)?;
    if run(workspace.cargo().args(["fmt", "--all", "--check"])).is_err() {
        findings.problem("rustfmt would change files (or is not installed): run `cargo fmt --all`");
    }
    // Templates of `host plugins new` are not modules of this workspace.
    let is_template = |file: &&PathBuf| {
        file.starts_with("hosts/cli/templates") && file.extension().is_some_and(|end| end == "rs")
    };
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--check", "--edition", "2024"]);
    rustfmt.args(files.iter().filter(is_template));
    if run(rustfmt.current_dir(&workspace.root)).is_err() {
        findings.problem("rustfmt would change templates: run `rustfmt hosts/cli/templates/*.rs`");
    }
    if options.fast {
        findings.note("clippy was left out");
    } else if has_clippy(workspace) {
        let mut clippy = workspace.cargo();
        clippy.args([
            "clippy",
            "--release",
            "--workspace",
            "--all-targets",
            "--quiet",
        ]);
        clippy.args(["--", "--deny", "warnings"]);
        if run(&mut clippy).is_err() {
            findings.problem("clippy has warnings");
        }
    } else {
        findings.note("clippy is not installed and was left out");
    }

    for note in &findings.notes {
        println!("note: {note}");
    }
    for problem in &findings.problems {
        println!("problem: {problem}");
    }
    match findings.problems.len() {
        0 => Ok(()),
        count => bail!("{count} problems"),
    }
}

fn has_clippy(workspace: &Workspace) -> bool {
    let output = workspace.cargo().args(["clippy", "--version"]).output();
    output.is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use espalier_samples::{Facility, lacks};

    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let workspace = Workspace::load().expect("a workspace");
        let files = match workspace.files() {
            Ok(files) => files,
            Err(error) => return lacks(Facility::Checkout, &format!("{error:#}")),
        };
        let findings = Findings::of_tree(&workspace, &files).expect("files that can be read");
        assert_eq!(findings.problems, [""; 0]);
    }
}
