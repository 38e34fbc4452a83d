//! Options -> the suite of attacks, its table, and a nonzero exit status after any failure.
#![allow(clippy::print_stdout, clippy::print_stderr)] // A tool of the developer's.

use std::panic;
use std::process::ExitCode;

use clap::Parser;
use espalier_torture::attacks::ENTRIES;
use espalier_torture::suite::{Asked, repeat, run, table};

/// Failures of an attack that are printed as text; the others are listed by number.
const SHOWN: usize = 5;

/// Attack the program and count what it survives.
#[derive(Parser)]
struct Options {
    /// Time limit of the suite
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Seed of all draws
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One attack, to its end
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// One try of it
    #[arg(long = "try", value_name = "K", requires = "only")]
    number: Option<u64>,
    /// Place of the first fault of that try, as printed with the failure
    #[arg(long, value_name = "PLACE", requires = "number")]
    at: Option<u64>,
}

fn main() -> ExitCode {
    let Options {
        minutes,
        seed,
        only,
        number,
        at,
    } = Options::parse();
    if let Some(only) = &only
        && ENTRIES.iter().all(|entry| entry.name != only)
    {
        let names: Vec<&str> = ENTRIES.iter().map(|entry| entry.name).collect();
        eprintln!(
            "error: no attack is called `{only}`; there are {}",
            names.join(", ")
        );
        return ExitCode::from(2);
    }
    // A failure is printed with the command that repeats it.
    panic::set_hook(Box::new(|_| ()));
    let asked = Asked {
        minutes,
        seed,
        only,
        tries: number.map(|number| number..number + 1),
        at,
    };
    let rows = run(&ENTRIES, &asked, |row| {
        for failure in row.failures.iter().take(SHOWN) {
            eprintln!("{}", repeat(row, failure, seed));
        }
        let others = row
            .failures
            .iter()
            .skip(SHOWN)
            .map(|failure| failure.number.to_string());
        let others: Vec<String> = others.collect();
        if !others.is_empty() {
            eprintln!("failed: {}, too, --try {}\n", row.name, others.join(", "));
        }
        let took = row.took.as_secs_f64();
        eprintln!(
            "{}: {} tries, {} failed, {took:.0} s",
            row.name,
            row.tries,
            row.failures.len()
        );
    });
    println!("\n{}", table(&rows));
    if rows.iter().all(|row| row.failures.is_empty()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
