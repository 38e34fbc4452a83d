//! A kill, or an error, at every call that a use of the program makes on a file of its output.

use crate::ended::{Ended, PATIENCE};
use crate::random::Random;
use crate::scenario::Scenario;
use crate::suite::{Attack, Try};

/// Kills at counted calls, and again while it goes on.
pub struct Kills(AtCalls);

/// Errors at counted calls.
pub struct Errors(AtCalls);

/// Every call of every use in a drawn order, with what happens there.
struct AtCalls {
    uses: Vec<Scenario>,
    /// Use, call from 1, kind.
    cases: Vec<(usize, usize, &'static str)>,
}

impl AtCalls {
    fn new(seed: u64, kinds: impl Fn(&str) -> Vec<&'static str>) -> Self {
        let uses = Scenario::of_all();
        let mut cases = Vec::new();
        for (index, of) in uses.iter().enumerate() {
            for (call, words) in of.calls.iter().enumerate() {
                let name = words.split(' ').next().unwrap_or_default();
                cases.extend(kinds(name).into_iter().map(|kind| (index, call + 1, kind)));
            }
        }
        let cases = Random::of(seed, "calls", 0).shuffled(cases);
        AtCalls { uses, cases }
    }

    fn case(&self, a_try: &Try) -> (&Scenario, usize, &'static str, String) {
        let (of, call, kind) = self.cases[a_try.number as usize];
        let of = &self.uses[of];
        let case = format!(
            "{}: {kind} at call {call}, {}",
            of.of.name,
            of.calls[call - 1]
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
        // Ranks that are threads make their calls in no fixed order: the last ones may not come.
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
        of.goes_on(&out, &case);
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
        if ended.succeeded() {
            of.is_whole(&out, &format!("{case}: it succeeded"));
        }
        of.goes_on(&out, &case);
    }
}
