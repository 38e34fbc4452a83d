//! `host split`: writes a base without a part of its weights, and the adapter that begins with it.

use std::io::Write;

use anyhow::Result;
use espalier_trainer::bytes::Bytes;
use espalier_trainer::convert::split::{self, DIRECTORIES};

use super::quantize::new_model_config;
use crate::arguments::SplitArguments;
use crate::output::Output;
use crate::watch::{Showing, watched};

/// Splits and prints the result.
pub fn run(arguments: &SplitArguments, out: &mut Output) -> Result<()> {
    arguments.check()?;
    let resolved = new_model_config(&arguments.model.sources())?;
    let done = watched(
        Showing::unless_quiet(arguments.model.quiet),
        None,
        |observer, stop| split::split(&resolved, observer, stop),
    )?;
    let directory = resolved.config().run.out.as_deref().unwrap_or("".as_ref());
    out.set_place(directory);
    writeln!(
        out,
        "{} weights changed, {} tensors copied, {} -> {}; {} numbers in the adapter",
        done.base.changed,
        done.base.copied,
        Bytes(done.base.bytes_before),
        Bytes(done.base.bytes_after),
        done.params
    )?;
    if let Some([with_adapter, alone]) = done.errors.relative() {
        writeln!(
            out,
            "error of the packed weights: {with_adapter:.4} with the adapter, {alone:.4} without \
             (relative, over {} weights)",
            done.sites
        )?;
    }
    let [base, adapter] = DIRECTORIES.map(|name| directory.join(name));
    writeln!(
        out,
        "train with --model {} --adapter {}",
        base.display(),
        adapter.display()
    )?;
    Ok(())
}
