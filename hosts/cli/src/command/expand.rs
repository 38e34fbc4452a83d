//! `host expand`: writes a model directory with added layers that compute an identity.

use std::io::Write;

use anyhow::Result;
use espalier_trainer::bytes::Bytes;
use espalier_trainer::convert::expand;

use super::quantize::new_model_config;
use crate::arguments::ExpandArguments;
use crate::output::Output;
use crate::watch::{Showing, watched};

/// Expands and prints the result.
pub fn run(arguments: &ExpandArguments, out: &mut Output) -> Result<()> {
    arguments.check()?;
    let resolved = new_model_config(&arguments.model.sources())?;
    let done = watched(
        Showing::unless_quiet(arguments.model.quiet),
        None,
        |observer, stop| expand::expand(&resolved, arguments.rate, observer, stop),
    )?;
    if let Some(directory) = &resolved.config().run.out {
        out.set_place(directory);
    }
    let added: Vec<String> = done.added.iter().map(usize::to_string).collect();
    writeln!(
        out,
        "{} layers, of which {} are new: {}; {} -> {}",
        done.layers,
        added.len(),
        added.join(", "),
        Bytes(done.tensors.bytes_before),
        Bytes(done.tensors.bytes_after)
    )?;
    writeln!(
        out,
        "train the new ones alone with --set model.train_only=expanded"
    )?;
    Ok(())
}
