//! Steps as they arrive -> their speed, and which of them get a line.

use std::time::Duration;

use espalier_engine::observer::StepMetrics;

/// Weight of the newest step in the running means.
const NEWEST: f64 = 0.1;
/// Part of the work between two plain lines.
const PART: f64 = 0.05;
/// Time and part of the work after which a line follows earlier.
const SOON: (Duration, f64) = (Duration::from_secs(5), 0.005);
/// Longest time between two plain lines.
const LATEST: Duration = Duration::from_secs(60);

/// Running means over steps.
#[derive(Debug, Default)]
pub struct Pace {
    means: Option<[f64; 2]>,
}

impl Pace {
    /// Adds a step.
    pub fn take(&mut self, step: &StepMetrics) {
        let new = [step.loss, step.step_secs];
        let means = self.means.get_or_insert(new);
        for (mean, new) in means.iter_mut().zip(new) {
            *mean += NEWEST * (new - *mean);
        }
    }

    /// The mean loss.
    pub fn loss(&self) -> f64 {
        self.means.map_or(f64::NAN, |[loss, _]| loss)
    }

    /// Expected seconds of `steps` more steps.
    pub fn secs(&self, steps: u64) -> f64 {
        self.means.map_or(0.0, |[_, secs]| secs * steps as f64)
    }
}

/// Decides when a plain line of a piece of work is due.
#[derive(Debug, Default)]
pub struct LinePace {
    last: Option<(Duration, f64)>,
}

impl LinePace {
    /// Whether a line is due when `done` of `total` are done, `now` after the program's start.
    pub fn due(&mut self, now: Duration, done: u64, total: u64) -> bool {
        let share = done as f64 / total.max(1) as f64;
        let due = self.last.is_none_or(|(then, before)| {
            let (waited, further) = (now.saturating_sub(then), share - before);
            let soon = waited >= SOON.0 && further >= SOON.1;
            done >= total || soon || waited >= LATEST || further >= PART - 1e-9
        });
        if due {
            self.last = Some((now, share));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many lines a run of `steps` steps of `millis` each prints.
    fn lines(steps: u64, millis: u64) -> usize {
        let mut lines = LinePace::default();
        let due = |step: &u64| lines.due(Duration::from_millis(step * millis), *step, steps);
        (1..=steps).filter(due).count()
    }

    #[test]
    fn long_runs_print_a_bounded_number_of_lines() {
        assert_eq!(lines(3, 10), 3);
        assert_eq!(lines(1000, 1), 21);
        // A line every five seconds over ten minutes.
        assert_eq!(lines(120, 5000), 120);
        // Ten hours of steps of three seconds.
        let long = lines(12_000, 3000);
        assert!((200..700).contains(&long), "{long}");
    }

    #[test]
    fn means_start_at_the_first_step() {
        let step = |loss| StepMetrics {
            loss,
            step_secs: 2.0,
            ..StepMetrics::default()
        };
        let mut pace = Pace::default();
        pace.take(&step(4.0));
        assert_eq!((pace.loss(), pace.secs(3)), (4.0, 6.0));
        pace.take(&step(3.0));
        assert_eq!(pace.loss(), 3.9);
    }
}
