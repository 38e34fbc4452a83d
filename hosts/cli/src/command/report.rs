//! `host report`: a run's numbers as a page.

use std::io::Write;

use anyhow::Result;
use espalier_trainer::report::Report;

use crate::arguments::ReportArguments;

/// Writes the report anew and prints what it says and where it lies.
pub fn run(arguments: &ReportArguments, out: &mut dyn Write) -> Result<()> {
    let report = Report::of(&arguments.directory)?;
    let page = report.write(&arguments.directory)?;
    writeln!(out, "{}", report.title)?;
    writeln!(out, "{}", report.reading)?;
    writeln!(out, "{}", page.display())?;
    Ok(())
}
