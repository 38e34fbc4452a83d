//! Summaries -> the printed table, in Markdown, with what it was measured on.

use super::SpeedOptions;
use super::record::Record;
use super::summary::{Medians, Summary};

/// The table, with a line about machine and versions above it.
pub fn render(record: &Record, summaries: &[Summary], options: &SpeedOptions) -> String {
    let rows: Vec<Vec<String>> = std::iter::once(headings(options))
        .chain(summaries.iter().map(|line| row(line, options)))
        .collect();
    format!(
        "{}\n\n{}\n{}\n",
        circumstances(record, options),
        aligned(&rows),
        explanation(record, options)
    )
}

/// Date, versions, machine and sizes.
fn circumstances(record: &Record, options: &SpeedOptions) -> String {
    let recompute = if options.recompute {
        "recompute of layers"
    } else {
        "no recompute"
    };
    let backend = options.backend.map_or_else(
        || "the host's products use".to_owned(),
        |backend| format!("the host's backend is {backend}:"),
    );
    let prompt = match options.prompt {
        0 => String::new(),
        tokens => format!(" ({tokens} of each row not trained)"),
    };
    format!(
        "{}\n{}, {} threads; {backend} {}\nmodel {}, {} x {} tokens a step{prompt}, {recompute}; medians, rounds: {}, steps: {}",
        record.versions,
        record.machine.cpu,
        record.machine.threads,
        record.instruction_sets.join(", "),
        options.model,
        options.batch,
        options.sequence,
        options.rounds,
        options.steps,
    )
}

fn headings(options: &SpeedOptions) -> Vec<String> {
    let installed = |name: &'static str| options.as_installed.then_some(name);
    let names = ["method", "dtype", "host, tokens/s", "peer"].into_iter();
    names
        .chain(installed("as installed"))
        .chain(["ratio", "host, GB", "peer"])
        .chain(installed("as installed"))
        .chain(["ratio", "host, load s", "peer"])
        .chain(installed("as installed"))
        .chain(["losses differ", "at most"])
        .map(str::to_owned)
        .collect()
}

fn row(line: &Summary, options: &SpeedOptions) -> Vec<String> {
    let tokens = (options.batch * options.sequence) as f64;
    let sides = || {
        [Some(&line.host), Some(&line.peer), line.installed.as_ref()]
            .into_iter()
            .flatten()
    };
    let each = |text: &dyn Fn(&Medians) -> String| sides().map(text).collect::<Vec<_>>();
    let [least, most] = line.ratios;
    let mut cells = vec![line.case.method.to_string(), line.case.dtype.to_string()];
    cells.extend(each(&|side| format!("{:.0}", tokens / side.step_secs)));
    let ratio = format!("{:.2}", line.peer.step_secs / line.host.step_secs);
    cells.push(match options.rounds {
        1 => ratio,
        _ => format!("{ratio} ({least:.2}-{most:.2})"),
    });
    cells.extend(each(&|side| format!("{:.2}", side.peak_bytes / 1e9)));
    cells.push(format!(
        "{:.2}",
        line.host.peak_bytes / line.peer.peak_bytes
    ));
    cells.extend(each(&|side| format!("{:.1}", side.load_secs)));
    cells.push(format!("{:.1e}", line.loss_difference));
    cells.push(format!("{:.0e}", line.bound));
    cells
}

/// A Markdown table whose columns have one width each: names to the left, numbers to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let is_name = |column: usize| column < 2;
    let cell = |(column, text): (usize, &String)| {
        let width = widths[column];
        if is_name(column) {
            format!("{text:<width$}")
        } else {
            format!("{text:>width$}")
        }
    };
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().enumerate().map(cell).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule = |(column, &width): (usize, &usize)| {
        let end = if is_name(column) { "-" } else { ":" };
        "-".repeat(width + 1) + end
    };
    let rules: Vec<String> = widths.iter().enumerate().map(rule).collect();
    let mut lines: Vec<String> = rows.iter().map(line).collect();
    lines.insert(1, format!("|{}|\n", rules.join("|")));
    lines.concat()
}

/// What the columns mean.
fn explanation(record: &Record, options: &SpeedOptions) -> String {
    let installed = if options.as_installed {
        "As installed: the same with glibc's defaults.\n"
    } else {
        ""
    };
    format!(
        "Peer: transformers, PEFT, bitsandbytes, hqq with an allocator that returns no memory.\n\
         {installed}\
         Ratios: the host's tokens/s and memory over the peer's (and the least and most of a round).\n\
         GB: 10^9 bytes, the most that was resident.\n\
         Load: reading and encoding weights; the host's with measuring the rate of its products.\n\
         Losses: largest relative difference at a step, in full training by bf16 without \
         instructions for it at the first step.\n\
         All runs: {}",
        record.path().display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_one_width() {
        let rows = [["method", "dtype", "GB"], ["nf4", "bf16", "12.34"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        let expected =
            "| method | dtype |    GB |\n|--------|-------|------:|\n| nf4    | bf16  | 12.34 |\n";
        assert_eq!(aligned(&rows), expected);
    }
}
