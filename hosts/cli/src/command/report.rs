//! `host report`: the numbers of a run or of a comparison as a page.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;
use espalier_trainer::{compare, report};

use crate::arguments::ReportArguments;
use crate::output::Output;

/// Writes the report anew and prints what it says and where it lies.
pub fn run(arguments: &ReportArguments, out: &mut Output) -> Result<()> {
    let directory: &Path = &arguments.directory;
    out.tells_of(directory);
    if compare::report::is_comparison(directory) {
        let report = compare::report::Report::of(directory)?;
        show_comparison(&report, &report.write(directory)?, out)?;
    } else {
        let report = report::Report::of(directory)?;
        show(
            &report.title,
            &report.reading,
            &report.write(directory)?,
            out,
        )?;
    }
    Ok(())
}

/// Prints what the report of a comparison says and where its page lies.
pub fn show_comparison(
    report: &compare::report::Report,
    page: &Path,
    out: &mut dyn Write,
) -> io::Result<()> {
    write!(out, "{}", report.table())?;
    show(&report.title, &report.reading, page, out)
}

fn show(title: &str, reading: &dyn Display, page: &Path, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{title}\n{reading}\n{}", page.display())
}
