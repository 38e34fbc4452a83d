//! Writes the boundary between host and plugins as text, and compares it with the recorded one.

mod keep;
mod samples;
mod tables;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Args;
use espalier_interface::abi::{ABI_MAJOR, ABI_MINOR, ABI_OLDEST_MINOR};

use crate::workspace::Workspace;

/// The boundary as recorded when its version was last raised.
const RECORD: &str = "core/interface/abi.txt";

/// Options of `cargo xtask abi`.
#[derive(Args)]
pub struct AbiOptions {
    /// Record the boundary as it is; refused where it changed and the version did not
    #[arg(long)]
    record: bool,
    /// Keep the sources of this version, so that tests can build plugins for it as long as the host
    /// loads them
    #[arg(long, conflicts_with = "record")]
    keep: bool,
}

/// Prints the boundary and compares it with the record.
///
/// # Errors
/// Where it changed under the same version, or the record has another version; files that cannot be
/// written.
pub fn check(workspace: &Workspace, options: &AbiOptions) -> Result<()> {
    let path = workspace.root.join(RECORD);
    let now = boundary();
    print!("{now}");
    let recorded = read(&path)?;
    if options.record {
        if let Some(recorded) = &recorded
            && version(recorded) == version(&now)
            && *recorded != now
        {
            bail!("{}", unversioned(recorded, &now));
        }
        fs::write(&path, &now).with_context(|| format!("cannot write {}", path.display()))?;
        println!("recorded in {RECORD}");
        return Ok(());
    }
    match recorded {
        None => bail!("{RECORD} is missing: make it with `cargo xtask abi --record`"),
        Some(recorded) => compare(&recorded, &now)?,
    }
    if options.keep {
        let kept = keep::sources(workspace, &format!("{ABI_MAJOR}.{ABI_MINOR}"))?;
        println!("kept in {}", kept.display());
    }
    Ok(())
}

/// The boundary as text; its first line is its version.
fn boundary() -> String {
    format!(
        "interface {ABI_MAJOR}.{ABI_MINOR}, plugins from {ABI_MAJOR}.{ABI_OLDEST_MINOR} on\n\n{}\n{}",
        tables::describe(),
        samples::describe(),
    )
}

fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Refuses a boundary that differs from the recorded one.
fn compare(recorded: &str, now: &str) -> Result<()> {
    if recorded == now {
        return Ok(());
    }
    if version(recorded) == version(now) {
        bail!("{}", unversioned(recorded, now));
    }
    bail!(
        "the boundary is of another version than {RECORD} ({} -> {}): record it with `cargo xtask abi --record`",
        version(recorded),
        version(now)
    );
}

fn version(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// The message for a change without a version.
fn unversioned(recorded: &str, now: &str) -> String {
    format!(
        "the boundary changed and its version did not:\n{}\nraise ABI_MINOR (core/interface/src/abi/root.rs), \
         and ABI_OLDEST_MINOR where older plugins cannot live with it, as core/interface/ABI.md says; \
         then `cargo xtask abi --record`",
        difference(recorded, now)
    )
}

/// The lines that only one of two texts has.
fn difference(old: &str, new: &str) -> String {
    let only = |sign: char, of: &str, other: &str| -> Vec<String> {
        let known: Vec<&str> = other.lines().collect();
        let lines = of.lines().filter(|line| !known.contains(line));
        lines.map(|line| format!("{sign} {line}")).collect()
    };
    let lines = [only('-', old, new), only('+', new, old)].concat();
    if lines.is_empty() {
        "  the same lines in another order".to_owned()
    } else {
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boundary_is_the_recorded_one() {
        let workspace = Workspace::load().expect("cargo reads the workspace");
        let recorded = fs::read_to_string(workspace.root.join(RECORD)).expect("a record");
        compare(&recorded, &boundary()).expect("no change without a version");
    }

    /// abi_stable refuses a table of a crate whose version is incompatible. So a crate's minor
    /// version must stay as long as plugins built with an older one load.
    #[test]
    fn the_crates_version_decides_which_plugins_load() {
        let version = tables::crate_version();
        let expected = format!("{ABI_MAJOR}.{ABI_OLDEST_MINOR}.");
        assert!(version.starts_with(&expected), "{version}");
    }

    #[test]
    fn a_change_without_a_version_is_shown_line_by_line() {
        let old = "interface 0.1\n\ntable a\n  0 open\n";
        compare(old, old).expect("equal");
        let changed = old.replace("open", "close");
        let message = compare(old, &changed).expect_err("changed").to_string();
        assert!(message.contains("-   0 open\n+   0 close"), "{message}");
        let raised = changed.replace("0.1", "0.2");
        let message = compare(old, &raised).expect_err("another").to_string();
        assert!(
            message.contains("interface 0.1 -> interface 0.2"),
            "{message}"
        );
    }
}
