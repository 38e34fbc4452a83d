//! `host completions` and `host manual`: the command line for shells, and as pages.

use std::io::Write;

use anyhow::{Context, Result};
use clap::CommandFactory;
use espalier_system::failure::UsageError;
use espalier_trainer::error::Error;

use crate::arguments::{Arguments, CompletionsArguments, ManualArguments};

/// Prints the completions of a shell.
pub fn completions(arguments: &CompletionsArguments, out: &mut dyn Write) -> Result<()> {
    let name = &arguments.name;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err(Error::Usage(UsageError {
            message: format!("expected the name of a program, found {name:?}"),
            next_step: "name it by letters, digits, `-` and `_`".to_owned(),
        })
        .into());
    }
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), name, &mut text);
    Ok(out.write_all(&text)?)
}

/// Writes a page for the program and for each command.
pub fn manual(arguments: &ManualArguments, out: &mut dyn Write) -> Result<()> {
    let folder = &arguments.out;
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Arguments::command(), folder));
    written.with_context(|| format!("cannot write pages into {}", folder.display()))?;
    writeln!(out, "pages     {}", folder.display())?;
    Ok(())
}
