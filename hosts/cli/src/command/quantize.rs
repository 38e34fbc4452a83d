//! `host quantize`: writes a model directory with packed weights, or chooses how to pack them.

mod auto_bits;

use std::io::Write;

use anyhow::Result;
use espalier_config::{Need, ResolvedConfig, Sources, resolve};
use espalier_trainer::bytes::Bytes;
use espalier_trainer::convert::{merge, quantize};
use espalier_trainer::error::Error;

use crate::arguments::QuantizeArguments;
use crate::output::Output;
use crate::watch::{Showing, watched};

/// Packs and prints the result.
pub fn run(arguments: &QuantizeArguments, out: &mut Output) -> Result<()> {
    arguments.check()?;
    if let Some(asked) = arguments.asked() {
        return auto_bits::run(arguments, &asked, out);
    }
    let resolved = new_model_config(&arguments.sources())?;
    pack(arguments, &resolved, out)
}

/// Writes the packed model of `resolved` and prints what was done.
fn pack(arguments: &QuantizeArguments, resolved: &ResolvedConfig, out: &mut Output) -> Result<()> {
    let done = watched(
        Showing::unless_quiet(arguments.model.quiet),
        None,
        |observer, stop| {
            if arguments.decoded {
                merge::decode(resolved, observer, stop)
            } else {
                quantize::quantize(resolved, observer, stop)
            }
        },
    )?;
    if let Some(directory) = &resolved.config().run.out {
        out.set_place(directory);
    }
    writeln!(
        out,
        "{} weights {}, {} tensors copied, {} -> {}",
        done.changed,
        if arguments.decoded {
            "decoded"
        } else {
            "packed"
        },
        done.copied,
        Bytes(done.bytes_before),
        Bytes(done.bytes_after)
    )?;
    Ok(())
}

/// The config of a command that makes a new model directory.
pub fn new_model_config(sources: &Sources) -> Result<ResolvedConfig> {
    let resolved = resolve(sources).map_err(Error::from)?;
    let needs = [Need::Model, Need::Out];
    resolved.require(&needs).map_err(Error::from)?;
    Ok(resolved)
}
