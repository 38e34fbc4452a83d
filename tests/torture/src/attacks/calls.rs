//! A kill, or an error, at every call that a use of the program makes on a file of its output.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;

use crate::ended::{Ended, PATIENCE};
use crate::random::Random;
use crate::scenario::Scenario;
use crate::suite::{Attack, Try};
use crate::training::names;

/// Kills at counted calls, and again while the use resumes.
pub struct Kills(AtCalls);

/// Errors at counted calls.
pub struct Errors(AtCalls);

/// Every call of every use in a drawn order, with its fault.
struct AtCalls {
    uses: Vec<Scenario>,
    cases: Vec<Case>,
}

/// Use, call from 1, and its fault: an index in [`KINDS`].
type Case = (usize, usize, usize);

/// Possible faults of a call.
const KINDS: [&str; 8] = [
    "kill", "eio", "enospc", "edquot", "erofs", "readonly", "short", "full",
];

/// More than the calls of any use.
const CALLS: u64 = 1_000_000;

impl AtCalls {
    fn new(seed: u64, kinds: impl Fn(&str) -> Vec<&'static str>) -> Self {
        let uses = Scenario::of_all();
        let mut cases = Vec::new();
        for (index, of) in uses.iter().enumerate() {
            for (call, words) in of.calls.iter().enumerate() {
                let name = words.split(' ').next().unwrap_or_default();
                let place = |kind| KINDS.iter().position(|known| *known == kind);
                let kinds = kinds(name).into_iter().filter_map(place);
                cases.extend(kinds.map(|kind| (index, call + 1, kind)));
            }
        }
        let cases = Random::of(seed, "calls", 0).shuffled(cases);
        AtCalls { uses, cases }
    }

    fn case(&self, a_try: &Try) -> (&Scenario, usize, &'static str, String) {
        // The number of calls varies, and the order with it: the case itself determines a place.
        let place =
            |(of, call, kind): Case| 1 + (kind * self.uses.len() + of) as u64 * CALLS + call as u64;
        let at = a_try
            .at
            .unwrap_or_else(|| place(self.cases[a_try.number as usize]));
        a_try.happened.store(at, Ordering::Relaxed);
        let (rest, call) = ((at - 1) / CALLS, ((at - 1) % CALLS) as usize);
        let (kind, of) = (
            rest as usize / self.uses.len(),
            rest as usize % self.uses.len(),
        );
        let (of, kind) = (&self.uses[of], KINDS[kind]);
        let case = format!(
            "{}: {kind} at call {call}, {}",
            of.of.name,
            of.calls.get(call - 1).map_or("", String::as_str)
        );
        (of, call, kind, case)
    }
}

impl Kills {
    /// Makes every use once.
    pub fn prepare(seed: u64) -> Result<Box<dyn Attack>, String> {
        Ok(Box::new(Kills(AtCalls::new(seed, |_| vec!["kill"]))))
    }
}

impl Attack for Kills {
    fn tries(&self) -> Option<u64> {
        Some(self.0.cases.len() as u64)
    }

    fn attempt(&self, a_try: &Try) {
        let (of, call, kind, case) = self.0.case(a_try);
        let out = a_try.name();
        // Ranks that are threads make their calls in no fixed order: the last ones may not occur.
        let ended = Ended::of(&mut of.faulty(&out, "", call, kind), PATIENCE);
        if ended.signal != Some(libc::SIGKILL) {
            ended.as_success(&case);
        }
        let mut random = a_try.random.clone();
        for _ in 0..random.below(3) {
            if of.resumes() {
                let call = 1 + random.below(of.calls.len());
                Ended::of(&mut of.faulty(&out, "--resume", call, kind), PATIENCE);
            }
        }
        of.recovers(&out, &case);
    }
}

impl Errors {
    /// Makes every use once.
    pub fn prepare(seed: u64) -> Result<Box<dyn Attack>, String> {
        let kinds = |name: &str| match name {
            "write" => vec!["eio", "enospc", "edquot", "readonly", "short", "full"],
            "mkdir" | "rename" | "open" | "open64" | "openat64" => {
                vec!["eio", "enospc", "erofs", "edquot"]
            }
            "unlink" | "unlinkat" | "rmdir" => vec!["eio", "erofs"],
            _ => vec!["eio"],
        };
        Ok(Box::new(Errors(AtCalls::new(seed, kinds))))
    }
}

impl Attack for Errors {
    fn tries(&self) -> Option<u64> {
        Some(self.0.cases.len() as u64)
    }

    fn attempt(&self, a_try: &Try) {
        let (of, call, kind, case) = self.0.case(a_try);
        let out = a_try.name();
        let ended = Ended::of(&mut of.faulty(&out, "", call, kind), PATIENCE);
        ended.as_documented(&case);
        let unremoved = case.contains(", unlink") && case.ends_with("run.lock");
        if kind == "readonly" || unremoved {
            remove_unused(&of.path(&out), kind == "readonly");
        }
        if ended.succeeded() {
            of.is_whole(&out, &format!("{case}: it succeeded"));
        }
        of.recovers(&out, &case);
    }
}

/// Removes the unused locks that remain below `directory` where they could not be removed, and the
/// unfinished files where `all` could not.
fn remove_unused(directory: &Path, all: bool) {
    for name in names(directory) {
        let path = directory.join(&name);
        let unfinished = all && name.ends_with(".partial");
        if path.is_dir() && unfinished {
            fs::remove_dir_all(path).expect("removed");
        } else if path.is_dir() {
            remove_unused(&path, all);
        } else if unfinished || name == "run.lock" {
            fs::remove_file(path).expect("removed");
        }
    }
}
