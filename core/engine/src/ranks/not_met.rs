//! The error for processes of a run that did not all join in time.

use std::fmt;

use espalier_system::failure::{ExitClass, Failure};

/// The processes did not all join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotMet {
    /// The time in seconds.
    pub secs: u64,
    /// The processes that did not join, or that this is not known.
    pub missing: String,
    /// The call in which this process waits, where it is in one.
    pub inside: Option<String>,
}

impl fmt::Display for NotMet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotMet { secs, missing, .. } = self;
        write!(
            f,
            "the processes did not all join within {secs} s: {missing}"
        )?;
        match &self.inside {
            Some(inside) => write!(f, "; this one waits in {inside}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for NotMet {}

impl Failure for NotMet {
    fn exit_class(&self) -> ExitClass {
        ExitClass::Peer
    }

    fn next_step(&self) -> String {
        "check those processes, their machines and the network, or raise run.join_timeout_secs if they are \
         slow; then start again, with --resume where the run had begun"
            .to_owned()
    }
}
