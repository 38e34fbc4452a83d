//! Measured rungs -> a page in Markdown.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::LadderOptions;
use super::rung::{MeasuredRung, ROWS};

/// Writes the page.
///
/// # Errors
/// Where the file cannot be written.
pub fn write(
    path: &Path,
    options: &LadderOptions,
    ladders: &[(&str, Vec<MeasuredRung>)],
) -> Result<()> {
    let mut page = format!(
        "# The ladders, measured\n\n\
         `cargo xtask bench ladder` makes this page and the plot. It trains each rung of\n\
         [`host plan --ladder`](plan.md#ladders) for {} steps, on the {} shape with random weights and \
         rows\nof {} tokens. Peaks are the operating system's: the most resident memory (`VmHWM`) \
         without\nmapped pages of files. Runs are stopped after their steps. A peak that is 10 % away \
         from its plan\nfails the command.\n\n\
         ![Peak and plan of each rung](ladder.svg)\n",
        options.steps,
        options.model,
        options.tokens / ROWS,
    );
    for (name, rungs) in ladders {
        write!(
            page,
            "\n## {name}\n\n\
             | rung | from | tokens | step | peak, MB | change, MB | planned, MB |\n\
             |---|---:|---:|---|---:|---:|---:|\n"
        )?;
        for rung in rungs {
            writeln!(page, "{}", line(rung, rungs))?;
        }
    }
    page += "\nThe first two rungs of `recipe` in the plan have the logits of all tokens at once. \
             No run has\nthem, so the first is measured with logits in chunks, and the second is left \
             out: it is the third.\n";
    fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))
}

/// A row of the table.
fn line(rung: &MeasuredRung, rungs: &[MeasuredRung]) -> String {
    let below = rungs.iter().find(|other| Some(other.number) == rung.from);
    let mb = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    let change = below.map_or(String::new(), |below| {
        let change = rung.peak_bytes as f64 - below.peak_bytes as f64;
        format!("{:+.1}", change / 1e6)
    });
    let step = below.map_or(String::new(), |_| format!("`{}`", rung.step));
    let from = below.map_or(String::new(), |below| below.number.to_string());
    let cells = [
        format!("{} {}", rung.number, rung.name),
        from,
        rung.tokens.to_string(),
        step,
        mb(rung.peak_bytes),
        change,
        mb(rung.planned_bytes),
    ];
    format!("| {} |", cells.join(" | "))
}
