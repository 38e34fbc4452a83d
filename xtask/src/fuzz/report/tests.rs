//! Results of fuzzing -> a table with a command for each failure.

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
fn a_failure_shows_its_cause_and_the_command_to_repeat_it() {
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
