//! The results of an attack -> a row of the table, and the commands that repeat its failures.

use std::time::Duration;

/// The results of an attack.
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// Tries made.
    pub tries: u64,
    /// Failed tries.
    pub failures: Vec<Failure>,
    /// Why it was skipped, or ended early.
    pub left_out: Option<String>,
    /// Its duration.
    pub took: Duration,
}

impl Row {
    /// An attack without tries yet.
    pub(super) fn of(name: &'static str) -> Self {
        Row {
            name,
            tries: 0,
            failures: Vec::new(),
            left_out: None,
            took: Duration::ZERO,
        }
    }
}

/// A try that failed.
pub struct Failure {
    /// Its number.
    pub number: u64,
    /// The place of the fault, as in [`Try::happened`].
    pub happened: u64,
    /// The error.
    pub problem: String,
}

/// The rows as a table.
pub fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<24}{:>8}{:>10}{:>8}{:>9}  left out\n",
        "attack", "tries", "survived", "failed", "seconds"
    );
    for row in rows {
        let failed = row.failures.len() as u64;
        let left_out = row.left_out.as_deref().unwrap_or("");
        let survived = row.tries.saturating_sub(failed);
        let line = format!(
            "{:<24}{:>8}{survived:>10}{failed:>8}{:>9.0}  {left_out}",
            row.name,
            row.tries,
            row.took.as_secs_f64()
        );
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// A failure with the command that repeats it.
pub fn repeat(row: &Row, failure: &Failure, seed: u64) -> String {
    let at = match failure.happened {
        0 => String::new(),
        call => format!(" --at {call}"),
    };
    let problem: Vec<&str> = failure.problem.lines().collect();
    format!(
        "failed: {} {}: {}\nrepeat: cargo xtask torture --only {} --seed {seed} --try {}{at}\n",
        row.name,
        failure.number,
        problem.join("\n        "),
        row.name,
        failure.number
    )
}
