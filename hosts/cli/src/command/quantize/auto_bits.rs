//! `host quantize --auto-bits`: measures, chooses, and writes the choice.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::Result;
use espalier_compare::bits::{Asked, choose_bits};
use espalier_config::{Need, resolve};
use espalier_system::failure::UsageError;
use espalier_system::files::{refuse_existing, write_atomically};
use espalier_system::shell;
use espalier_trainer::error::Error;

use crate::arguments::QuantizeArguments;
use crate::output::Output;
use crate::watch::{Showing, watched};

/// The beginning of a file of chosen sites.
const OURS: &str = "# Chosen by `host quantize --auto-bits`";

/// Measures and chooses; prints the choice, and writes it beside the table. With `--out` it packs
/// the model as well.
pub fn run(arguments: &QuantizeArguments, asked: &Asked, out: &mut Output) -> Result<()> {
    let resolved = resolve(&arguments.sources()).map_err(Error::from)?;
    let needs = [Need::Model, Need::Data];
    resolved.require(&needs).map_err(Error::from)?;
    let directory = resolved.config().run.out.as_deref();
    if let Some(directory) = directory {
        refuse_existing(directory)?;
    }
    let chosen = asked.table.with_extension("toml");
    refuse_other_file(&chosen)?;
    let choice = watched(
        Showing::unless_quiet(arguments.model.quiet),
        None,
        |observer, stop| choose_bits(&resolved, asked, observer, stop),
    )?;
    write_atomically(&chosen, choice.to_toml().as_bytes())?;
    write!(out, "{choice}")?;
    let path = shell::quoted(&chosen.display().to_string());
    writeln!(
        out,
        "\n{} [[sites]] in {path}: host train --config {path} ..",
        choice.rules.len()
    )?;
    match (directory, choice.quantizers().as_slice()) {
        (Some(_), []) => writeln!(out, "no weight is packed: no model is written")?,
        (Some(_), _) => {
            let packed = choice.laid_over(&resolved)?;
            super::pack(arguments, &packed, out)?;
        }
        (None, [_, _, ..]) => writeln!(
            out,
            "a checkpoint is packed by one quantizer, so this choice is packed as it is loaded"
        )?,
        (None, _) => {}
    }
    Ok(())
}

/// Refuses to overwrite a config that is not a choice.
fn refuse_other_file(path: &Path) -> Result<()> {
    let holds = |text: &str| text.is_empty() || text.starts_with(OURS);
    match fs::read_to_string(path) {
        Ok(text) if !holds(&text) => Err(UsageError {
            message: format!(
                "{} exists, and is not a choice of --auto-bits",
                path.display()
            ),
            next_step: "name another file with --auto-bits FILE: the choice is written beside it"
                .to_owned(),
        }
        .into()),
        _ => Ok(()),
    }
}
