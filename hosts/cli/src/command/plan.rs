//! `host plan`: the memory and time of a run, before it starts.

use std::io::Write;

use anyhow::Result;
use espalier_compare::bits;
use espalier_config::{Need, resolve};
use espalier_engine::observer::Unobserved;
use espalier_system::stop::StopFlag;
use espalier_trainer::error::Error;
use espalier_trainer::planner::{LadderName, LadderRequest, PlanReport, Search};
use espalier_trainer::session::{ProcessContext, Session};

use crate::arguments::PlanArguments;
use crate::progress::Warnings;

/// Makes the plan and prints it.
pub fn run(arguments: &PlanArguments, out: &mut dyn Write) -> Result<()> {
    arguments.check()?;
    let mut resolved = resolve(&arguments.run.sources()).map_err(Error::from)?;
    let preset = arguments.preset.as_deref();
    if preset.is_none() {
        resolved.require(&[Need::Model]).map_err(Error::from)?;
    }
    if let (Some(table), Some(memory)) = (&arguments.bits, arguments.memory) {
        let chosen = bits::choice_of_table(table, memory)?;
        resolved = chosen.laid_over(&resolved)?;
    }
    let asked = arguments.asked();
    if let Some(name) = arguments.ladder {
        let request = LadderRequest {
            resolved: &resolved,
            preset,
            asked: &asked,
            name: name.unwrap_or_else(|| LadderName::of_preset(preset)),
        };
        return print_ladder(&request, arguments.json, out);
    }
    let mut auto = None;
    let search = Search {
        resolved: &resolved,
        preset,
        asked: &asked,
    };
    if arguments.auto || search.is_left_open()? {
        let (found, chosen) = search.run(&Unobserved)?;
        (auto, resolved) = (Some(found), chosen);
    }
    let process_context = ProcessContext::start(resolved.config(), &StopFlag::new())?;
    let session = Session::open_to_plan(
        &resolved,
        preset,
        asked.assumed,
        &process_context,
        &Warnings,
    )?;
    let report = PlanReport {
        auto,
        ..PlanReport::of(&session, resolved.config(), &asked)?
    };
    if arguments.json {
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(())
}

/// Makes the plans of a ladder and prints them.
fn print_ladder(request: &LadderRequest, json: bool, out: &mut dyn Write) -> Result<()> {
    let ladder = request.run(&Warnings)?;
    if json {
        serde_json::to_writer_pretty(&mut *out, &ladder)?;
        writeln!(out)?;
    } else {
        write!(out, "{ladder}")?;
    }
    Ok(())
}
