//! Renderings that stop after a number of steps -> the line at which a bound is exceeded.
//!
//! A process that a bound ends cannot report the line. So the same conversation is rendered again
//! with other numbers of steps, until the last harmless step is found. The crate minijinja reports
//! the line at which it stopped.

use std::time::{Duration, Instant};

use super::bounds::{Line, STEPS};

/// Time limit of the search. After it, the line is the last one that the template is known to
/// reach.
const SEARCH: Duration = Duration::from_secs(10);

/// How a rendering with a limit of steps ended.
pub(super) enum Attempt {
    /// It was stopped, at this line.
    Stopped(Option<Line>),
    /// The bound was exceeded first.
    Met,
    /// It finished.
    Finished,
}

/// The line of the step that exceeds the bound; none where no rendering exceeds it.
pub(super) fn line(mut attempt: impl FnMut(u64) -> Attempt) -> Option<Line> {
    let end = Instant::now() + SEARCH;
    let (mut survived, mut line, mut met) = (0, None, 64);
    while met < STEPS {
        match attempt(met) {
            Attempt::Stopped(at) => (survived, line) = (met, at),
            Attempt::Met => break,
            Attempt::Finished => return None,
        }
        if Instant::now() > end {
            break;
        }
        met *= 4;
    }
    while met - survived > 1 && Instant::now() < end {
        let middle = survived + (met - survived) / 2;
        match attempt(middle) {
            Attempt::Stopped(at) => (survived, line) = (middle, at),
            Attempt::Met | Attempt::Finished => met = middle,
        }
    }
    match (line, met - survived) {
        (Some(Line::At(line)), 2..) => Some(Line::Near(line)),
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A template whose line grows by one every ten steps, and whose step `fatal` exceeds a bound.
    fn found(fatal: u64, last: u64) -> Option<Line> {
        line(|steps| match steps {
            steps if steps > fatal => Attempt::Met,
            steps if steps > last => Attempt::Finished,
            steps => Attempt::Stopped(Some(Line::At(1 + steps as usize / 10))),
        })
    }

    #[test]
    fn the_line_is_that_of_the_first_step_that_is_not_survived() {
        for fatal in [1, 9, 10, 63, 64, 65, 1000, 123_456] {
            let line = Line::At(1 + fatal as usize / 10);
            assert_eq!(found(fatal, u64::MAX), Some(line), "{fatal}");
        }
        assert_eq!(found(u64::MAX, 500), None);
    }
}
