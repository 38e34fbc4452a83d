//! `host plan`: what a run would take, before it takes anything.

use std::io::Write;

use anyhow::Result;
use espalier_trainer::config::{Need, resolve};
use espalier_trainer::error::Error;

use crate::arguments::PlanArguments;

/// Resolves the config of the run.
pub fn run(arguments: &PlanArguments, out: &mut dyn Write) -> Result<()> {
    let resolved = resolve(&arguments.run.sources()).map_err(Error::from)?;
    resolved.require(&[Need::Model]).map_err(Error::from)?;
    if arguments.json {
        serde_json::to_writer_pretty(&mut *out, resolved.config())?;
        writeln!(out)?;
    } else {
        write!(out, "{}", resolved.to_toml())?;
    }
    Ok(())
}
