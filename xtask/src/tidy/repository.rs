//! Checks the list of files: required files, sizes, and paths of one machine.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Findings;
use crate::workspace::Workspace;

const REQUIRED: [&str; 9] = [
    "LICENSE",
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "Cargo.lock",
    "rustfmt.toml",
    ".gitignore",
    ".ci/run",
    "configs/quickstart.toml",
];

/// Prefixes of paths that exist on one machine only; in halves so that this file passes.
const HOMES: [&str; 4] = [
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
    concat!("C:\\Us", "ers"),
];

/// Most bytes of a clone.
const MOST_BYTES: u64 = 40 << 20;

pub fn check(workspace: &Workspace, files: &[PathBuf], findings: &mut Findings) -> Result<()> {
    for name in REQUIRED {
        if !files.iter().any(|file| file == Path::new(name)) {
            findings.problem(format!("{name} is missing"));
        }
    }
    let mut total_bytes = 0;
    for file in files {
        let content = fs::read(workspace.root.join(file))
            .with_context(|| format!("cannot read {}", file.display()))?;
        total_bytes += content.len() as u64;
        let Ok(text) = String::from_utf8(content) else {
            continue;
        };
        for (line, home) in homes(&text) {
            findings.problem(format!(
                "{}:{line}: a path of one machine, `{home}`",
                file.display()
            ));
        }
    }
    if total_bytes > MOST_BYTES {
        findings.problem(format!(
            "the files weigh {total_bytes} bytes, at most {MOST_BYTES}"
        ));
    }
    test_command_agrees(workspace, findings)
}

/// The lines, counted from 1, that name a home folder. Users of one letter are examples.
fn homes(text: &str) -> Vec<(usize, &'static str)> {
    // Most files have none: look at lines only where one does.
    if !HOMES.iter().any(|home| text.contains(home)) {
        return Vec::new();
    }
    let is_real = |line: &str, home: &str| {
        line.split(home).skip(1).any(|rest| {
            let user = rest.split(|letter: char| !letter.is_alphanumeric()).next();
            user.is_some_and(|user| user.len() != 1)
        })
    };
    let named = |(index, line): (usize, &str)| {
        HOMES
            .into_iter()
            .find(|home| is_real(line, home))
            .map(|home| (index + 1, home))
    };
    text.lines().enumerate().filter_map(named).collect()
}

/// The test command in the README is the one that runs on every change.
fn test_command_agrees(workspace: &Workspace, findings: &mut Findings) -> Result<()> {
    let (readme, run) = (
        workspace.root.join("README.md"),
        workspace.root.join(".ci/run"),
    );
    if !readme.is_file() || !run.is_file() {
        return Ok(()); // already reported as missing
    }
    let script = fs::read_to_string(&run)?;
    let command = script
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default();
    if !fs::read_to_string(&readme)?
        .lines()
        .any(|line| line.trim() == command.trim())
    {
        findings.problem(format!(
            ".ci/run ends in `{command}`, which README.md does not give"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_folders_are_found_by_line() {
        let text = format!("fine\nsee {}someone/x\n", HOMES[0]);
        assert_eq!(homes(&text), [(2, HOMES[0])]);
        assert_eq!(homes(&format!("\"{}u/.cache\"\n", HOMES[0])), []);
        assert_eq!(homes("nothing here\n"), []);
    }
}
