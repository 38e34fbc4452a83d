//! `host report`: the numbers of a run or of a comparison as a page.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use espalier_trainer::{compare, report};

use crate::arguments::ReportArguments;

/// Writes the report anew and prints what it says and where it lies.
pub fn run(arguments: &ReportArguments, out: &mut dyn Write) -> Result<()> {
    let directory: &Path = &arguments.directory;
    let (title, reading, page) = if compare::report::is_comparison(directory) {
        let report = compare::report::Report::of(directory)?;
        write!(out, "{}", report.table())?;
        let reading = report.reading.to_string();
        (report.title.clone(), reading, report.write(directory)?)
    } else {
        let report = report::Report::of(directory)?;
        let reading = report.reading.to_string();
        (report.title.clone(), reading, report.write(directory)?)
    };
    writeln!(out, "{title}\n{reading}\n{}", page.display())?;
    Ok(())
}
