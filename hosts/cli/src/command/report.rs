//! `host report`: the numbers of a run or of a comparison as a page.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;
use espalier_compare::report::{Report as ComparisonReport, is_comparison};
use espalier_report::Report;

use crate::arguments::ReportArguments;
use crate::output::Output;

/// Writes the report again and prints its text and its path.
pub fn run(arguments: &ReportArguments, out: &mut Output) -> Result<()> {
    let directory = arguments.directory();
    out.set_place(directory);
    if is_comparison(directory) {
        let report = ComparisonReport::of(directory)?;
        show_comparison(&report, &report.write(directory)?, out)?;
    } else {
        let report = Report::of(directory)?;
        show(
            &report.title,
            &report.reading,
            &report.write(directory)?,
            out,
        )?;
    }
    Ok(())
}

/// Prints the report of a comparison and the path of its page.
pub fn show_comparison(
    report: &ComparisonReport,
    page: &Path,
    out: &mut dyn Write,
) -> io::Result<()> {
    write!(out, "{}", report.table())?;
    show(&report.title, &report.reading, page, out)
}

fn show(title: &str, reading: &dyn Display, page: &Path, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{title}\n{reading}\n{}", page.display())
}
