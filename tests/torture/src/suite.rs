//! Attacks, a seed and minutes -> one table, and for every failure the command that repeats it.

mod entry;
mod row;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub use entry::{Attack, Entry, Prepare, Try};
pub use row::{Failure, Row, repeat, table};

/// A request to the suite.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its time limit.
    pub minutes: f64,
    /// The seed of all draws.
    pub seed: u64,
    /// One attack instead of all.
    pub only: Option<String>,
    /// These tries instead of all.
    pub tries: Option<Range<u64>>,
    /// The place of the first of them.
    pub at: Option<u64>,
}

/// Failures of one attack after which its other tries are skipped.
const ENOUGH: usize = 20;

/// Makes the attacks in order, each for its share of the hour, and then more tries of those that
/// fill the time.
pub fn run(entries: &[Entry], asked: &Asked, mut report: impl FnMut(&Row)) -> Vec<Row> {
    let end = Instant::now() + Duration::from_secs_f64(asked.minutes * 60.0);
    let chosen = |entry: &&Entry| asked.only.as_ref().is_none_or(|only| only == entry.name);
    let entries: Vec<&Entry> = entries.iter().filter(chosen).collect();
    let mut rows: Vec<Row> = entries.iter().map(|entry| Row::of(entry.name)).collect();
    for (entry, row) in entries.iter().zip(&mut rows) {
        let share = match asked.only {
            Some(_) => u64::MAX,
            None => (entry.an_hour as f64 * asked.minutes / 60.0).ceil() as u64,
        };
        attack(entry, asked, share, end, row);
        report(row);
    }
    if asked.only.is_none() {
        let fills = |(entry, row): &(&&Entry, &mut Row)| {
            entry.fills && row.left_out.is_none() && row.failures.is_empty()
        };
        let mut left: Vec<_> = entries.iter().zip(&mut rows).filter(fills).collect();
        while let Some((entry, row)) = left.pop() {
            let slice = end.saturating_duration_since(Instant::now()) / (left.len() as u32 + 1);
            attack(entry, asked, u64::MAX, Instant::now() + slice, row);
            report(row);
        }
    }
    rows
}

/// Makes more tries of an attack: at most `share`, until `end`.
fn attack(entry: &Entry, asked: &Asked, share: u64, end: Instant, row: &mut Row) {
    let started = Instant::now();
    if Instant::now() >= end {
        if row.tries == 0 {
            row.left_out = Some("the time was over".into());
        }
        return;
    }
    let prepared = catch_unwind(|| (entry.prepare)(asked.seed));
    match prepared {
        Ok(Ok(attack)) => many(entry, asked, &*attack, share, end, row),
        Ok(Err(why)) => row.left_out = Some(why),
        Err(panic) => {
            let problem = format!("its references cannot be made: {}", words(&*panic));
            row.failures.push(Failure {
                number: 0,
                happened: 0,
                problem,
            });
        }
    }
    row.took += started.elapsed();
}

/// Makes `share` more tries, or the requested ones.
fn many(
    entry: &Entry,
    asked: &Asked,
    attack: &dyn Attack,
    share: u64,
    end: Instant,
    row: &mut Row,
) {
    // An attack requested by name has all the time, once its references exist.
    let end = match asked.only {
        Some(_) => Instant::now() + Duration::from_secs_f64(asked.minutes * 60.0),
        None => end,
    };
    let goal = share.min(attack.tries().unwrap_or(u64::MAX));
    let Range {
        start: first,
        end: goal,
    } = asked.tries.clone().unwrap_or(row.tries..goal);
    let (next, made) = (AtomicU64::new(first), AtomicU64::new(0));
    let (failures, stopped) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let worker = || {
        let is_over =
            || stopped.load(Ordering::Relaxed) || Instant::now() >= end && asked.tries.is_none();
        while !is_over() {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= goal {
                break;
            }
            let a_try = Try::of(asked.seed, entry.name, number, asked.at);
            let done = catch_unwind(AssertUnwindSafe(|| attack.attempt(&a_try)));
            made.fetch_add(1, Ordering::Relaxed);
            if let Err(panic) = done {
                let happened = a_try.happened.load(Ordering::Relaxed);
                let mut failures = failures.lock().expect("nothing panics there");
                failures.push(Failure {
                    number,
                    happened,
                    problem: words(&*panic),
                });
                if failures.len() >= ENOUGH {
                    stopped.store(true, Ordering::Relaxed);
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..entry.at_once {
            scope.spawn(worker);
        }
    });
    let made = made.into_inner();
    row.tries += made;
    row.failures = failures.into_inner().expect("nothing panics there");
    row.failures.sort_by_key(|failure| failure.number);
    let endless = share == u64::MAX && attack.tries().is_none();
    row.left_out = match (goal.saturating_sub(first)).saturating_sub(made) {
        0 => None,
        _ if row.failures.len() >= ENOUGH => Some(format!("the rest, behind {ENOUGH} failures")),
        _ if endless => None,
        rest => Some(format!("{rest}: the time was over")),
    };
}

/// The message of a panic.
fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "a panic without words".to_owned())
}

#[cfg(test)]
mod tests;
