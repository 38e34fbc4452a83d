//! The outcome of all checks of a component, for people and for tests.

use std::fmt;

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The check passed.
    Passed,
    /// The check failed: what was expected and what was found, with shape, position and options.
    Failed(String),
    /// The check does not apply to this component, and why.
    Skipped(String),
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Name, such as `encode.deterministic`.
    pub name: &'static str,
    /// What it asserts, in one line.
    pub asserts: &'static str,
    /// How it ended.
    pub outcome: Outcome,
}

/// The checks of one component, in the order in which they ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The component's name.
    pub component: String,
    /// The checks.
    pub checks: Vec<Check>,
}

impl Report {
    /// Whether no check failed.
    pub fn passed(&self) -> bool {
        self.failures().next().is_none()
    }

    /// The checks that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Check> {
        let failed = |check: &&Check| matches!(check.outcome, Outcome::Failed(_));
        self.checks.iter().filter(failed)
    }

    /// Panics if a check failed, for an author's own test.
    ///
    /// # Panics
    /// If a check failed; the message is the whole report.
    pub fn assert_passed(&self) {
        assert!(self.passed(), "\n{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for check in &self.checks {
            match &check.outcome {
                Outcome::Passed => writeln!(f, "  ok      {}", check.name)?,
                Outcome::Skipped(why) => writeln!(f, "  skipped {}: {why}", check.name)?,
                Outcome::Failed(why) => {
                    writeln!(f, "  FAILED  {}: {}", check.name, check.asserts)?;
                    writeln!(f, "          {why}")?;
                }
            }
        }
        let failed = self.failures().count();
        let all = self.checks.len();
        write!(f, "{}: {failed} of {all} checks failed", self.component)
    }
}
