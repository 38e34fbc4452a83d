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

/// What is asked of the suite.
#[derive(Clone, Debug)]
pub struct Asked {
    /// How long it may take.
    pub minutes: f64,
    /// What all draws follow from.
    pub seed: u64,
    /// One attack instead of all.
    pub only: Option<String>,
    /// These tries instead of all.
    pub tries: Option<Range<u64>>,
    /// Where the first of them is to happen.
    pub at: Option<u64>,
}

/// Failures of one attack above which the rest of its tries is left out.
const ENOUGH: usize = 20;

/// Makes the attacks one after the other, each its share of the hour, and then more of those that
/// fill the time.
pub fn run(entries: &[Entry], asked: &Asked, mut tell: impl FnMut(&Row)) -> Vec<Row> {
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
        tell(row);
    }
    if asked.only.is_none() {
        let fills = |(entry, row): &(&&Entry, &mut Row)| {
            entry.fills && row.left_out.is_none() && row.failures.is_empty()
        };
        let mut left: Vec<_> = entries.iter().zip(&mut rows).filter(fills).collect();
        while let Some((entry, row)) = left.pop() {
            let slice = end.saturating_duration_since(Instant::now()) / (left.len() as u32 + 1);
            attack(entry, asked, u64::MAX, Instant::now() + slice, row);
            tell(row);
        }
    }
    rows
}

/// Makes more tries of an attack: at most `share`, until `end`.
fn attack(entry: &Entry, asked: &Asked, share: u64, end: Instant, row: &mut Row) {
    let begun = Instant::now();
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
    row.took += begun.elapsed();
}

/// Makes as many tries as `share` says, behind those that were made, or the one that is asked for.
fn many(
    entry: &Entry,
    asked: &Asked,
    attack: &dyn Attack,
    share: u64,
    end: Instant,
    row: &mut Row,
) {
    // An attack that is asked for by name has all the time, once its references are there.
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

/// What a panic says.
fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "a panic without words".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails in every third try.
    struct Thirds;

    impl Attack for Thirds {
        fn tries(&self) -> Option<u64> {
            Some(10)
        }

        fn attempt(&self, a_try: &Try) {
            a_try.happened.store(7, Ordering::Relaxed);
            assert!(a_try.number % 3 != 2, "number {}", a_try.number);
        }
    }

    const ENTRIES: [Entry; 2] = [
        Entry::new("thirds", 360, |_| Ok(Box::new(Thirds))),
        Entry::alone("nowhere", 1, |_| Err("no such thing".into())),
    ];

    fn asked() -> Asked {
        Asked {
            minutes: 1.0,
            seed: 5,
            only: None,
            tries: None,
            at: None,
        }
    }

    #[test]
    fn failures_are_counted_and_name_the_command_that_repeats_them() {
        let rows = run(&ENTRIES, &asked(), |_| ());
        let text = table(&rows);
        let thirds: Vec<&str> = text
            .lines()
            .nth(1)
            .expect("a row")
            .split_whitespace()
            .collect();
        assert_eq!(thirds[..4], ["thirds", "6", "4", "2"]);
        assert!(
            text.lines()
                .nth(2)
                .expect("a row")
                .ends_with("no such thing"),
            "{text}"
        );
        let said = repeat(&rows[0], &rows[0].failures[1], 5);
        assert!(said.contains("thirds 5: number 5"), "{said}");
        assert!(
            said.ends_with("--only thirds --seed 5 --try 5 --at 7\n"),
            "{said}"
        );
    }

    #[test]
    fn one_try_is_made_alone_and_an_attack_by_name_to_its_end() {
        let one = Asked {
            only: Some("thirds".into()),
            tries: Some(8..9),
            ..asked()
        };
        let rows = run(&ENTRIES, &one, |_| ());
        assert_eq!(
            (rows.len(), rows[0].tries, rows[0].failures[0].number),
            (1, 1, 8)
        );
        let all = Asked { tries: None, ..one };
        let rows = run(&ENTRIES, &all, |_| ());
        assert_eq!((rows[0].tries, rows[0].failures.len()), (10, 3));
    }

    /// Never fails.
    struct Endless;

    impl Attack for Endless {
        fn attempt(&self, _: &Try) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn time_that_is_left_is_spent_on_those_that_fill_it() {
        let entries = [
            Entry::filling("a", 1, |_| Ok(Box::new(Endless))),
            Entry::new("b", 1, |_| Ok(Box::new(Endless))),
            Entry::filling("c", 1, |_| Ok(Box::new(Endless))),
        ];
        let minutes = 2.0 / 60.0;
        let rows = run(&entries, &Asked { minutes, ..asked() }, |_| ());
        assert_eq!(rows[1].tries, 1);
        for filled in [&rows[0], &rows[2]] {
            assert!(filled.tries > 10, "{}", filled.tries);
            assert!(filled.left_out.is_none());
        }
    }
}
