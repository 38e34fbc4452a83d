//! `host plan`: the memory and time of a run, before it starts.

use std::io::Write;

use anyhow::Result;
use espalier_compare::bits;
use espalier_config::{Need, resolve};
use espalier_engine::observer::Unobserved;
use espalier_system::stop::StopFlag;
use espalier_trainer::error::Error;
use espalier_trainer::planner::{LadderName, LadderRequest, Misfit, PlanReport, Search};
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
    let search = Search {
        resolved: &resolved,
        preset,
        asked: &asked,
    };
    let (auto, planned) = if arguments.auto || search.is_left_open()? {
        let (found, chosen) = search.run(&Unobserved)?;
        (Some(found), chosen)
    } else {
        (None, resolved.clone())
    };
    let process_context = ProcessContext::start(planned.config(), &StopFlag::new())?;
    let session =
        Session::open_to_plan(&planned, preset, asked.assumed, &process_context, &Warnings)?;
    let mut report = PlanReport {
        auto,
        ..PlanReport::of(&session, planned.config(), &asked)?
    };
    let mut instead = None;
    if !report.fits && report.auto.is_none() {
        drop(session);
        // A search that is refused finds nothing that would fit.
        instead = search.run(&Unobserved).ok().map(|(found, _)| found);
    }
    let misfit = Misfit::of(&report, instead.as_ref().or(report.auto.as_ref()));
    if arguments.json {
        report.auto = report.auto.or(instead);
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
    } else {
        write!(out, "{report}")?;
        if let Some(found) = instead {
            write!(out, "\nwhat would fit, of the same training\n{found}")?;
        }
    }
    misfit.map_or(Ok(()), |misfit| Err(misfit.into()))
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
