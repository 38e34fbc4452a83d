//! What libFuzzer wrote of a target -> a row of the table, and what repeats a failure.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What came of a target.
pub struct Outcome {
    name: String,
    runs: Option<u64>,
    seconds: u64,
    new: Option<u64>,
    failure: Option<Failure>,
}

/// A target that did not run its time.
struct Failure {
    what: String,
    /// The input that did it; none where the target ended before the first.
    input: Option<PathBuf>,
    log: PathBuf,
}

impl Outcome {
    /// Reads what libFuzzer wrote to `log` in the time that it ran.
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

    /// Whether it crashed, took too long or too much memory, or did not begin.
    pub fn failed(&self) -> bool {
        self.failure.is_some()
    }
}

/// The line that says what was wrong.
fn what(text: &str) -> String {
    let says = |line: &&str| {
        ["panicked at", "ERROR: AddressSanitizer", "ERROR: libFuzzer"]
            .iter()
            .any(|sign| line.contains(sign))
    };
    let mut lines = text.lines();
    let Some(line) = lines.by_ref().find(says) else {
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        return last.unwrap_or("it said nothing").trim().to_owned();
    };
    // A panic's message stands below its place.
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
        let told = write!(
            text,
            "\n{}: {}\n  {repeat}\n  its log: {}\n",
            one.name,
            failure.what,
            failure.log.display()
        );
        told.expect("a string takes all");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Duration = Duration::from_secs(31);
    const STATS: &str = "stat::number_of_executed_units: 3120\n\
        stat::average_exec_per_sec:     104\nstat::new_units_added:          7\n";

    fn outcome(text: &str, success: bool) -> Outcome {
        Outcome::read("rows", text, (success, RUN), Path::new("rows.log"))
    }

    #[test]
    fn a_run_is_a_row() {
        let done = outcome(STATS, true);
        assert!(!done.failed());
        let table = table(&[done]);
        let row: Vec<&str> = table
            .lines()
            .nth(1)
            .expect("a row")
            .split_whitespace()
            .collect();
        assert_eq!(row, ["rows", "3120", "31", "7", "0"]);
        assert_eq!(table.lines().count(), 2);
    }

    #[test]
    fn a_failure_says_what_and_how_to_repeat_it() {
        let panicked = format!(
            "thread 'x' panicked at src/a.rs:3:5:\nindex out of bounds\n==1== ERROR: libFuzzer: deadly signal\n\
             artifact_prefix='c/'; Test unit written to c/rows-crash-12\n{STATS}"
        );
        let failed = outcome(&panicked, false);
        assert!(failed.failed());
        let table_of = table(&[failed]);
        for expected in [
            "rows: thread 'x' panicked at src/a.rs:3:5: index out of bounds",
            "repeat it: cargo xtask fuzz --only rows --repeat c/rows-crash-12",
            "its log: rows.log",
        ] {
            assert!(table_of.contains(expected), "{expected}\n{table_of}");
        }
        let slow = "==7== ERROR: libFuzzer: timeout after 2 seconds\n";
        assert!(table(&[outcome(slow, false)]).contains("timeout after 2 seconds"));
        let absent = table(&[outcome("error while loading shared libraries\n\n", false)]);
        assert!(absent.contains("rows: error while loading"), "{absent}");
        assert!(
            absent.contains("it ended before an input did it"),
            "{absent}"
        );
    }
}
