//! libFuzzer's output for a target -> a row of the table, and the command that repeats a failure.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The result of a target.
pub struct Outcome {
    name: String,
    runs: Option<u64>,
    seconds: u64,
    new: Option<u64>,
    failure: Option<Failure>,
}

/// A target that ended before its time.
struct Failure {
    what: String,
    /// The failing input; none where the target ended before the first.
    input: Option<PathBuf>,
    log: PathBuf,
}

impl Outcome {
    /// Reads libFuzzer's output `text` of a run of `ran`.
    pub fn read(name: &str, text: &str, (success, ran): (bool, Duration), log: &Path) -> Self {
        let number = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            line.trim().parse().ok()
        };
        let failure = Failure {
            what: what(text),
            input: text.lines().find_map(|line| {
                let (_, path) = line.split_once("Test unit written to ")?;
                Some(PathBuf::from(path.trim()))
            }),
            log: log.to_owned(),
        };
        Outcome {
            name: name.to_owned(),
            runs: number("stat::number_of_executed_units:"),
            seconds: ran.as_secs(),
            new: number("stat::new_units_added:"),
            failure: (!success).then_some(failure),
        }
    }

    /// Whether it crashed, took too long or too much memory, or did not start.
    pub fn failed(&self) -> bool {
        self.failure.is_some()
    }
}

/// The line that names the failure.
fn what(text: &str) -> String {
    let says = |line: &&str| {
        ["panicked at", "ERROR: AddressSanitizer", "ERROR: libFuzzer"]
            .iter()
            .any(|sign| line.contains(sign))
    };
    let mut lines = text.lines();
    let Some(line) = lines.by_ref().find(says) else {
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        return last.unwrap_or("it printed nothing").trim().to_owned();
    };
    // A panic's message is on the line after its place.
    if line.contains("panicked at") {
        format!(
            "{} {}",
            line.trim(),
            lines.next().unwrap_or_default().trim()
        )
    } else {
        line.trim().to_owned()
    }
}

/// All outcomes as a table, and below it each failure with the command that repeats it.
pub fn table(outcomes: &[Outcome]) -> String {
    let number = |number: Option<u64>| number.map_or_else(|| "?".to_owned(), |n| n.to_string());
    let mut text = format!(
        "{:<14} {:>9} {:>7} {:>11} {:>7}\n",
        "target", "runs", "seconds", "new entries", "crashes"
    );
    for one in outcomes {
        let row = writeln!(
            text,
            "{:<14} {:>9} {:>7} {:>11} {:>7}",
            one.name,
            number(one.runs),
            one.seconds,
            number(one.new),
            u8::from(one.failed())
        );
        row.expect("a string takes all");
    }
    for one in outcomes {
        let Some(failure) = &one.failure else {
            continue;
        };
        let repeat = match &failure.input {
            Some(input) => format!(
                "repeat it: cargo xtask fuzz --only {} --repeat {}",
                one.name,
                input.display()
            ),
            None => "it ended before an input did it".to_owned(),
        };
        let written = write!(
            text,
            "\n{}: {}\n  {repeat}\n  its log: {}\n",
            one.name,
            failure.what,
            failure.log.display()
        );
        written.expect("a string takes all");
    }
    text
}

#[cfg(test)]
mod tests;
