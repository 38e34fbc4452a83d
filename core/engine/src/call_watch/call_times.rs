//! The pending calls of all threads, check by check -> warnings about long calls, and the call that
//! ends the process.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use espalier_interface::abi::call_site::{Limit, Pending};
use espalier_system::signal;

use super::LateCall;

/// When a call without progress is reported: the first time and again.
const REPORTED_AFTER: [Duration; 3] = [
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(300),
];

/// From when on a call without progress counts as late.
const LATE: Duration = Duration::from_secs(1);

/// How long after a signal a call that still runs is reported.
const AFTER_SIGNAL: Duration = Duration::from_secs(2);

/// What the watch has to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Tell the user.
    Say(String),
    /// End the process: the call took longer than the config key allows.
    End(LateCall, &'static str),
}

/// What earlier checks saw.
#[derive(Default)]
pub(super) struct CallTimes {
    threads: HashMap<usize, Seen>,
    /// Slow calls that make progress, already reported: component and callback.
    reported_as_going_on: BTreeSet<(String, &'static str)>,
    signal: Option<Signal>,
    ended: bool,
}

/// A call of a thread.
struct Seen {
    number: u64,
    beats: u64,
    /// Since it was entered, and since its last sign of progress.
    lasted: Duration,
    silent: Duration,
    /// How often it was reported.
    reports: usize,
}

/// A signal that asked to stop.
struct Signal {
    ago: Duration,
    is_reported: bool,
}

/// A call that is pending, and for how long.
struct Wait<'a> {
    pending: &'a Pending,
    lasted: Duration,
    silent: Duration,
}

impl CallTimes {
    /// Checks the pending calls, `passed` after the last check. `asked` is the signal that asked to
    /// stop. Returns what to do, and the late call.
    pub fn look(
        &mut self,
        pending: &[Pending],
        passed: Duration,
        asked: Option<i32>,
    ) -> (Vec<Action>, Option<LateCall>) {
        let waits = self.waits(pending, passed);
        let mut actions = Vec::new();
        if let Some((call, limited_by)) = ended_by(&waits)
            && !std::mem::replace(&mut self.ended, true)
        {
            actions.push(Action::End(call, limited_by));
            return (actions, None);
        }
        let late = deepest(&waits, |wait| wait.silent >= LATE);
        actions.extend(self.report_slow(&waits));
        actions.extend(self.signalled(asked, passed, late));
        (actions, late.map(Wait::late))
    }

    /// The calls that are checked, with their times.
    fn waits<'a>(&mut self, pending: &'a [Pending], passed: Duration) -> Vec<Wait<'a>> {
        self.threads
            .retain(|thread, _| pending.iter().any(|one| one.thread == *thread));
        let checked = pending
            .iter()
            .filter(|one| one.call.limit() != Limit::OfOthers);
        let waits = checked.map(|one| {
            let known = self.threads.get(&one.thread);
            if known.is_none_or(|seen| seen.number != one.number) {
                self.threads.insert(one.thread, Seen::of(one));
                return (one, Duration::ZERO, Duration::ZERO);
            }
            let seen = self.threads.get_mut(&one.thread).expect("it is known");
            seen.lasted += passed;
            if seen.beats == one.beats {
                seen.silent += passed
            } else {
                seen.silent = Duration::ZERO
            }
            seen.beats = one.beats;
            (one, seen.lasted, seen.silent)
        });
        let waits = waits.map(|(pending, lasted, silent)| Wait {
            pending,
            lasted,
            silent,
        });
        waits.collect()
    }

    /// The message about long calls. One without progress is reported each time; one with progress,
    /// once in a process.
    fn report_slow(&mut self, waits: &[Wait<'_>]) -> Option<Action> {
        let due: Vec<usize> = waits
            .iter()
            .filter(|wait| wait.is_due(self.threads[&wait.pending.thread].reports))
            .map(|wait| wait.pending.thread)
            .collect();
        if let Some(wait) = deepest(waits, |wait| due.contains(&wait.pending.thread)) {
            // Calls that wait for it are reported with it.
            for thread in &due {
                self.threads.get_mut(thread).expect("it was seen").reports += 1;
            }
            let (late, secs) = (wait.late(), wait.silent.as_secs());
            let mut line = format!("waiting for {late}, {secs} s so far");
            if let Limit::After(limit) = wait.pending.call.limit() {
                let limit = limit.as_secs();
                line += &format!("; without a sign of progress the program ends after {limit} s");
            }
            return Some(Action::Say(line));
        }
        let goes_on = |wait: &Wait<'_>| wait.lasted >= REPORTED_AFTER[0] && wait.silent < LATE;
        let wait = deepest(waits, goes_on)?;
        let call = wait.pending.call;
        let is_new = self
            .reported_as_going_on
            .insert((call.site().component().to_owned(), call.callback()));
        let line = format!(
            "{} is still running, {} s so far",
            wait.late(),
            wait.lasted.as_secs()
        );
        is_new.then_some(Action::Say(line))
    }

    /// The message after a signal: at once for a late call, else after [`AFTER_SIGNAL`].
    fn signalled(
        &mut self,
        asked: Option<i32>,
        passed: Duration,
        late: Option<&Wait<'_>>,
    ) -> Option<Action> {
        let number = asked?;
        let signal = self.signal.get_or_insert(Signal {
            ago: Duration::ZERO,
            is_reported: false,
        });
        signal.ago += passed;
        if signal.is_reported || (late.is_none() && signal.ago < AFTER_SIGNAL) {
            return None;
        }
        signal.is_reported = true;
        let name = signal::name(number);
        Some(Action::Say(match late {
            Some(wait) => format!(
                "{name} asks to stop, and this waits for {}, {} s so far; a second signal ends the program at once",
                wait.late(),
                wait.silent.as_secs()
            ),
            None => format!(
                "{name} asks to stop: the current work is finished first; a second signal ends the program at once"
            ),
        }))
    }
}

impl Seen {
    fn of(pending: &Pending) -> Self {
        Seen {
            number: pending.number,
            beats: pending.beats,
            lasted: Duration::ZERO,
            silent: Duration::ZERO,
            reports: 0,
        }
    }
}

impl Wait<'_> {
    /// Whether it is to be reported now, after `reports` reports.
    fn is_due(&self, reports: usize) -> bool {
        let due = match (REPORTED_AFTER.get(reports), self.pending.call.limit()) {
            // A call with a short limit is reported sooner.
            (Some(due), Limit::After(limit)) if reports == 0 => Some((*due).min(limit / 2)),
            (due, _) => due.copied(),
        };
        due.is_some_and(|due| self.silent >= due)
    }

    fn late(&self) -> LateCall {
        let call = self.pending.call;
        LateCall {
            plugin: call.site().component().to_owned(),
            file: call.site().file().map(Into::into),
            callback: call.callback().to_owned(),
            subject: self.pending.subject.as_deref().map(str::to_owned),
            secs: self.silent.as_secs(),
        }
    }
}

/// Of the calls that are `meant`, the most deeply nested one: the others wait for it. At equal
/// depth, the one that is silent longest.
fn deepest<'w, 'a>(
    waits: &'w [Wait<'a>],
    meant: impl Fn(&Wait<'a>) -> bool,
) -> Option<&'w Wait<'a>> {
    let meant = waits.iter().filter(|wait| meant(wait));
    meant.max_by_key(|wait| (wait.pending.call.depth(), wait.silent))
}

/// The call that exceeded its limit, and the config key of that limit.
fn ended_by(waits: &[Wait<'_>]) -> Option<(LateCall, &'static str)> {
    let over = |wait: &Wait<'_>, grace: Duration| match wait.pending.call.limit() {
        Limit::After(limit) => wait.silent + grace >= limit,
        _ => false,
    };
    if !waits.iter().any(|wait| over(wait, Duration::ZERO)) {
        return None;
    }
    // What it calls itself was entered a moment later.
    let wait = deepest(waits, |wait| over(wait, LATE))?;
    let limited_by = if wait.pending.call.is_create() {
        "run.probe_timeout_secs"
    } else {
        "run.plugin_timeout_secs"
    };
    Some((wait.late(), limited_by))
}

#[cfg(test)]
mod tests;
