//! `host plan`: what a run would take, before it takes anything.

use std::io::Write;

use anyhow::Result;
use espalier_trainer::config::{Need, resolve};
use espalier_trainer::error::Error;
use espalier_trainer::observer::Unobserved;
use espalier_trainer::plan::{Assumed, PlanReport};
use espalier_trainer::preset;
use espalier_trainer::session::Session;

use crate::arguments::PlanArguments;

/// Makes the plan and prints it.
pub fn run(arguments: &PlanArguments, out: &mut dyn Write) -> Result<()> {
    let resolved = resolve(&arguments.run.sources()).map_err(Error::from)?;
    let preset = arguments.preset.as_deref().map(preset::model).transpose()?;
    if preset.is_none() {
        resolved.require(&[Need::Model]).map_err(Error::from)?;
    }
    let assumed = Assumed::new(arguments.assume, arguments.host_memory)?;
    let session = Session::open_to_plan(&resolved, preset, assumed, &Unobserved)?;
    let report = PlanReport::of(&session, &assumed)?;
    if arguments.json {
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(())
}
