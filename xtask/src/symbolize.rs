//! The trace of a crash's line -> functions and lines of source.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use object::Object;

use crate::workspace::Workspace;

/// The text before the trace in a line.
const TRACE: &str = "; trace:";

/// Options of `cargo xtask symbolize`.
#[derive(Args)]
pub struct SymbolizeOptions {
    /// The line that the program ended with; unset: it is read from standard input
    line: Option<String>,
    /// Folders with the files of the crash: `host` and libraries as they were built; those of this
    /// workspace follow
    #[arg(long = "in", value_name = "DIR")]
    folders: Vec<PathBuf>,
}

/// Prints each frame of the line's trace: number, address, function and line.
///
/// # Errors
/// A line without a trace; `addr2line` (binutils) that is not installed.
pub fn show(workspace: &Workspace, options: &SymbolizeOptions) -> Result<()> {
    let text = match &options.line {
        Some(line) => line.clone(),
        None => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text)?;
            text
        }
    };
    let release = workspace.target.join("release");
    let mut folders = options.folders.clone();
    folders.extend([
        release.clone(),
        release.join("deps"),
        workspace.target.join("plugins"),
    ]);
    for line in lines(&Trace::parse(&text)?, &folders)? {
        println!("{line}");
    }
    Ok(())
}

/// The frames of a crash, from the faulting one outwards.
#[derive(Debug, PartialEq)]
struct Trace(Vec<Part>);

#[derive(Debug, PartialEq)]
enum Part {
    /// Frames of a module, by their addresses in its file.
    Module {
        name: String,
        build_id: String,
        addresses: Vec<u64>,
    },
    /// The number of omitted frames.
    More(String),
}

impl Trace {
    /// The trace of the first line in `text` that has one.
    fn parse(text: &str) -> Result<Self> {
        let found = text.lines().find_map(|line| line.split_once(TRACE));
        let Some((_, trace)) = found else {
            bail!("expected a line with `{TRACE} MODULE[BUILD ID]+0xADDRESS...`, found none");
        };
        let mut parts = Vec::new();
        let mut words = trace.split_whitespace();
        while let Some(word) = words.next() {
            if let Some(count) = word.strip_prefix("...") {
                // ` ...12 more...`
                parts.push(Part::More(count.to_owned()));
                words.next();
                continue;
            }
            let (module, addresses) = word
                .split_once("+0x")
                .with_context(|| format!("expected MODULE+0xADDRESS, found `{word}`"))?;
            let (name, build_id) = match module.split_once('[') {
                Some((name, id)) => (name, id.trim_end_matches(']')),
                None => (module, ""),
            };
            let addresses = addresses.split(",+0x").map(|address| {
                u64::from_str_radix(address, 16).with_context(|| {
                    format!("expected an address, found `0x{address}` in `{word}`")
                })
            });
            parts.push(Part::Module {
                name: name.to_owned(),
                build_id: build_id.to_owned(),
                addresses: addresses.collect::<Result<_>>()?,
            });
        }
        Ok(Trace(parts))
    }
}

/// A line or more for each frame.
fn lines(trace: &Trace, folders: &[PathBuf]) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    let mut number = 0;
    for part in &trace.0 {
        let (name, build_id, addresses) = match part {
            Part::More(count) => {
                lines.push(format!("     ... {count} frames more"));
                continue;
            }
            Part::Module {
                name,
                build_id,
                addresses,
            } => (name, build_id, addresses),
        };
        let file = file_of(name, build_id, folders);
        if let Err(why) = &file {
            lines.push(format!("     {name}: {why:#}"));
        }
        for &address in addresses {
            // All frames but the first hold a return address, which is after the call.
            let asked = address.saturating_sub(u64::from(number > 0));
            let place = match &file {
                Ok(file) => place_of(file, asked)?,
                Err(_) => vec!["?".to_owned()],
            };
            for (inlined, place) in place.iter().enumerate() {
                lines.push(match inlined {
                    0 => format!("{number:>4} {name}+0x{address:x} {place}"),
                    _ => format!("     {place}"),
                });
            }
            number += 1;
        }
    }
    Ok(lines)
}

/// The file `name` in one of the folders with the identity in the trace.
fn file_of(name: &str, build_id: &str, folders: &[PathBuf]) -> Result<PathBuf> {
    let mut others = Vec::new();
    for path in folders.iter().map(|folder| folder.join(name)) {
        let Ok(found) = build_id_of(&path) else {
            continue;
        };
        if found == build_id {
            return Ok(path);
        }
        others.push(format!("{} has the build id {found}", path.display()));
    }
    if others.is_empty() {
        bail!("it is in none of the folders; name its own with --in")
    } else {
        bail!(
            "{}, expected {build_id}: build that version, or name its folder with --in",
            others.join(", ")
        )
    }
}

/// The identity that the linker gave a file, in hexadecimal digits; empty where it gave none.
fn build_id_of(path: &Path) -> Result<String> {
    let bytes = fs::read(path)?;
    let file = object::File::parse(&*bytes)?;
    let id = file.build_id()?.unwrap_or_default();
    Ok(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The function and line of an address, and those that it is inlined into.
fn place_of(file: &Path, address: u64) -> Result<Vec<String>> {
    let mut command = Command::new("addr2line");
    command.args([
        "--functions",
        "--demangle",
        "--inlines",
        "--pretty-print",
        "--exe",
    ]);
    command.arg(file).arg(format!("0x{address:x}"));
    let output = command
        .output()
        .context("addr2line does not start: install binutils")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "addr2line failed: {}",
        errors.trim()
    );
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().map(|line| line.trim().to_owned()).collect())
}

#[cfg(test)]
mod tests;
