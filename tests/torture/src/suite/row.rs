//! What came of an attack -> a row of the table, and the commands that repeat its failures.

use std::time::Duration;

/// What came of an attack.
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// Tries made.
    pub tries: u64,
    /// Those that failed.
    pub failures: Vec<Failure>,
    /// Why it was left out, or ended before its time.
    pub left_out: Option<String>,
    /// How long it took.
    pub took: Duration,
}

impl Row {
    /// An attack of which nothing was tried yet.
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
    /// Where it happened, as [`Try::happened`].
    pub happened: u64,
    /// What was wrong.
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
