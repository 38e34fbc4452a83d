//! Counts of tries, the command that repeats one, and the use of time.

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
    let text = repeat(&rows[0], &rows[0].failures[1], 5);
    assert!(text.contains("thirds 5: number 5"), "{text}");
    assert!(
        text.ends_with("--only thirds --seed 5 --try 5 --at 7\n"),
        "{text}"
    );
}

#[test]
fn a_single_try_runs_alone_and_a_named_attack_runs_to_its_end() {
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
fn remaining_time_is_used_by_attacks_that_fill_it() {
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
