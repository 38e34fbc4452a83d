//! Runs checks one after the other, each independent of the outcomes before it.

use crate::checked::{Checked, Fault, calm};
use crate::report::{Check, Outcome, Report};

/// A run of checks.
pub struct Suite<'a> {
    report: Report,
    watch: Box<dyn FnMut(&Check) + 'a>,
}

impl<'a> Suite<'a> {
    /// A run of checks of `component`.
    pub fn new(component: &str) -> Self {
        Self::watched(component, |_| ())
    }

    /// As [`Suite::new`]; `watch` is called with each check when it is done.
    pub fn watched(component: &str, watch: impl FnMut(&Check) + 'a) -> Self {
        Suite {
            report: Report {
                component: component.to_owned(),
                checks: Vec::new(),
            },
            watch: Box::new(watch),
        }
    }

    /// Runs a check and records its outcome.
    pub fn check(
        &mut self,
        name: &'static str,
        asserts: &'static str,
        body: impl FnOnce() -> Checked,
    ) {
        let outcome = match calm(body) {
            Ok(()) => Outcome::Passed,
            Err(Fault::Failed(reason)) => Outcome::Failed(reason),
            Err(Fault::Skipped(reason)) => Outcome::Skipped(reason),
        };
        let check = Check {
            name,
            asserts,
            outcome,
        };
        (self.watch)(&check);
        self.report.checks.push(check);
    }

    /// True where the check called `name` ran and failed.
    pub fn failed(&self, name: &str) -> bool {
        self.report.failures().any(|check| check.name == name)
    }

    /// All checks that ran.
    pub fn finish(self) -> Report {
        self.report
    }
}
