//! The trace of a crash's line -> functions and lines of source.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use object::Object;

use crate::workspace::Workspace;

/// What stands before the trace in a line.
const TRACE: &str = "; trace:";

/// Options of `cargo xtask symbolize`.
#[derive(Args)]
pub struct Options {
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
/// A line without a trace; `addr2line` (binutils) is missing.
pub fn show(workspace: &Workspace, options: &Options) -> Result<()> {
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

/// The frames of a crash, from the one that was at fault outwards.
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
    /// So many frames are not told.
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
            // All but the first return to behind a call, which is what is asked for.
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

/// The file `name` of one of the folders that has the identity of the crash's.
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
        bail!("it lies in none of the folders; name its own with --in")
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
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "addr2line failed: {}", said.trim());
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().map(|line| line.trim().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of its own that is found again.
    #[inline(never)]
    fn here() -> u64 {
        let address = here as fn() -> u64 as usize;
        let maps = fs::read_to_string("/proc/self/maps").expect("Linux");
        let own = std::env::current_exe().expect("a file");
        let first = maps
            .lines()
            .find(|line| line.ends_with(&*own.to_string_lossy()));
        let base = first
            .and_then(|line| line.split('-').next())
            .expect("it is mapped");
        address as u64 - u64::from_str_radix(base, 16).expect("an address")
    }

    #[test]
    fn a_trace_becomes_functions_and_lines_where_the_build_is_the_same() {
        let own = std::env::current_exe().expect("a file");
        let folders = [own.parent().expect("a folder").to_owned()];
        let name = own.file_name().expect("a name").to_string_lossy();
        let id = build_id_of(&own).expect("its own file");
        let address = here();
        let line = format!(
            "error: it crashed; next: report; trace: {name}[{id}]+0x{address:x},+0x{:x} ?+0x7f00 ...12 more... gone.so[00ff]+0x1\n",
            address + 5
        );
        let shown = lines(&Trace::parse(&line).expect("a trace"), &folders).expect("addr2line");
        let shown = shown.join("\n");
        assert!(
            shown.contains(&format!("   0 {name}+0x{address:x} ")),
            "{shown}"
        );
        assert_eq!(
            shown.matches("symbolize::tests::here").count(),
            2,
            "{shown}"
        );
        assert!(shown.contains("xtask/src/symbolize.rs:"), "{shown}");
        assert!(shown.contains("... 12 frames more"), "{shown}");
        assert!(shown.contains("gone.so: it lies in none"), "{shown}");
        let other = line.replace(&id, "0123");
        let shown = lines(&Trace::parse(&other).expect("a trace"), &folders).expect("addr2line");
        assert!(
            shown[0].contains("expected 0123: build that version"),
            "{shown:?}"
        );
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        for text in [
            "",
            "error: x; next: y",
            "; trace: host",
            "; trace: host+0xzz",
        ] {
            assert!(Trace::parse(text).is_err(), "{text:?} passed");
        }
        let none = Trace::parse("; trace:").expect("an empty one");
        assert_eq!(none, Trace(Vec::new()));
    }
}
