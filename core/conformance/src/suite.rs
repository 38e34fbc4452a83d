//! Runs checks one after the other, each independent of the outcomes before it.

use crate::checked::{Checked, Fault, calm};
use crate::report::{Check, Outcome, Report};

/// A run of checks.
pub struct Suite<'a> {
    report: Report,
    watch: Box<dyn FnMut(&Check) + 'a>,
    /// The names of the only checks to run, or what they begin with; empty: all.
    only: Vec<String>,
    /// The names of all checks, run or not.
    names: Vec<&'static str>,
    /// Why no further check runs.
    hindered: Option<String>,
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
            only: Vec::new(),
            names: Vec::new(),
            hindered: None,
        }
    }

    /// The same run, of the checks alone that `only` names, or whose names begin so: `error` is
    /// `error.blocks` and `error.bound`. Empty: all.
    #[must_use]
    pub fn only(self, only: &[String]) -> Self {
        Suite {
            only: only.to_vec(),
            ..self
        }
    }

    /// Skips all further checks: what hinders them is told once.
    pub fn skip_rest(&mut self, why: &str) {
        self.hindered = Some(why.to_owned());
    }

    /// Runs a check and records its outcome.
    pub fn check(
        &mut self,
        name: &'static str,
        asserts: &'static str,
        body: impl FnOnce() -> Checked,
    ) {
        self.names.push(name);
        if !self.only.is_empty() && !self.only.iter().any(|only| is_of(only, name)) {
            return;
        }
        let outcome = match &self.hindered {
            Some(why) => Outcome::Skipped(why.clone()),
            None => match calm(body) {
                Ok(()) => Outcome::Passed,
                Err(Fault::Failed(reason)) => Outcome::Failed(reason),
                Err(Fault::Skipped(reason)) => Outcome::Skipped(reason),
            },
        };
        let check = Check {
            name,
            asserts,
            outcome,
        };
        (self.watch)(&check);
        self.report.checks.push(check);
    }

    /// Whether a check, run or not, has the name `only`, or one that begins so.
    pub fn has(&self, only: &str) -> bool {
        self.names.iter().any(|name| is_of(only, name))
    }

    /// The names of all checks, run or not.
    pub fn names(&self) -> &[&'static str] {
        &self.names
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

/// Whether `name` is `only`, or `only` and more after a point.
fn is_of(only: &str, name: &str) -> bool {
    let rest = name.strip_prefix(only);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_chosen_by_name_or_by_what_it_begins_with() {
        let run = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
            let mut suite = Suite::new("c").only(&only);
            for name in ["error.blocks", "error.bound", "errors", "train"] {
                suite.check(name, "", || Ok(()));
            }
            let checks = suite.finish().checks;
            checks.iter().map(|check| check.name).collect::<Vec<_>>()
        };
        assert_eq!(run(&[]).len(), 4);
        assert_eq!(run(&["error"]), ["error.blocks", "error.bound"]);
        assert_eq!(run(&["error.bound", "train"]), ["error.bound", "train"]);
        assert!(run(&["other"]).is_empty());
    }

    #[test]
    fn what_hinders_all_further_checks_is_their_reason() {
        let mut suite = Suite::new("c");
        suite.check("create", "", || Err(Fault::Failed("no".to_owned())));
        suite.skip_rest("see `create`");
        suite.check("other", "", || Err(Fault::Failed("no".to_owned())));
        let report = suite.finish();
        assert_eq!(report.failures().count(), 1);
        let why = Outcome::Skipped("see `create`".to_owned());
        assert_eq!(report.checks[1].outcome, why);
    }
}
