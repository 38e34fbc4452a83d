//! A plan that does not fit, and the search of those that do -> the failure of `host plan`.

use std::fmt;

use espalier_system::failure::{ExitClass, Failure};
use espalier_system::memory::OutOfMemory;

use super::{Auto, PlanReport};
use crate::bytes::Bytes;

/// A plan exceeds the memory that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The memory that does not suffice, with both numbers.
    lacks: String,
    /// What would fit, or what could be changed.
    way_out: String,
}

impl Misfit {
    /// The failure of a plan that does not fit; none for one that does. `found` is the result of
    /// the search for those that do, where there is one.
    pub fn of(report: &PlanReport, found: Option<&Auto>) -> Option<Self> {
        let way_out = match found {
            Some(Auto {
                advice: Some(advice),
                ..
            }) => advice.clone(),
            Some(found) => format!("with the keys above it fits: {}", found.chosen.choice),
            None => OutOfMemory::NEXT_STEP.to_owned(),
        };
        let lacks = report.lacks();
        (!report.fits).then_some(Misfit { lacks, way_out })
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the run does not fit: {}", self.lacks)
    }
}

impl std::error::Error for Misfit {}

impl Failure for Misfit {
    fn exit_class(&self) -> ExitClass {
        ExitClass::Resources
    }

    fn next_step(&self) -> String {
        self.way_out.clone()
    }
}

impl PlanReport {
    /// The memory that needs most beyond what is there, in words.
    fn lacks(&self) -> String {
        let words = |place: &str, needed: u64, there: u64| {
            format!(
                "{place} needs {}, {} are there",
                Bytes(needed),
                Bytes(there)
            )
        };
        let host = self.host.as_ref();
        let on_host = host.and_then(|host| Some((host.needed(), host.available?)));
        match on_host {
            Some((needed, there)) if needed > there => words("the host", needed, there),
            _ if host.is_some() => {
                let needed = self.memory.on_device();
                words("a device", needed, self.available_bytes)
            }
            _ => words(&self.device, self.memory.needed(), self.available_bytes),
        }
    }
}
