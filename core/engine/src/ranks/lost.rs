//! Why a run of many ranks ended: the lost rank, where it was, and how the loss was detected.

use std::fmt;

use espalier_system::failure::{ExitClass, Failure};
use serde::{Deserialize, Serialize};

/// A rank, or all ranks of a process, that the others cannot continue without.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// The rank; the first one, where a whole process is lost.
    pub rank: u32,
    /// How many ranks, from that one on.
    pub ranks: u32,
    /// Its process and the name of its machine, where there are several processes.
    pub process: Option<(u32, String)>,
    /// The optimizer step that it was in, counted from 1; 0 before the first.
    pub step: u64,
    /// Where it was among the calls that ranks make together.
    pub place: CallPosition,
    /// A rank that waits for it, and in what call.
    pub waiting: Option<(u32, String)>,
    /// How it was detected.
    pub cause: LostBy,
}

/// Where a rank is among the calls that ranks make together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallPosition {
    /// It has made none yet.
    #[default]
    Start,
    /// It is in this one.
    In(String),
    /// It is past this one, and in none.
    After(String),
}

/// How a loss was detected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LostBy {
    /// Its process closed the connection without a message.
    Closed,
    /// Its process gave no sign of life for so many seconds.
    Silent(u64),
    /// The rank gave no sign of life for so many seconds, while its process did.
    Hangs(u64),
    /// It makes the call `found` where rank `other` makes `expected`.
    OtherCall {
        /// Its own call.
        found: String,
        /// The other rank.
        other: u32,
        /// The other rank's call.
        expected: String,
    },
    /// It came to the end of its run while others wait for it.
    Ended,
    /// It failed and reported that.
    #[serde(rename = "Told")]
    Reported(String),
    /// It runs another config, plugin or program than the others.
    Disagrees(String),
    /// No connection to its process can be made.
    Unreached(String),
}

impl Lost {
    /// Rank `rank`, which failed with `message`, where nothing more is known of it.
    pub fn reported(rank: u32, message: impl Into<String>) -> Self {
        Lost::of(rank, LostBy::Reported(message.into()))
    }

    /// Rank `rank`, lost by `cause`, where nothing more is known of it.
    pub fn of(rank: u32, cause: LostBy) -> Self {
        Lost {
            rank,
            ranks: 1,
            process: None,
            step: 0,
            place: CallPosition::Start,
            waiting: None,
            cause,
        }
    }
}

impl std::error::Error for Lost {}

impl Failure for Lost {
    fn exit_class(&self) -> ExitClass {
        ExitClass::Peer
    }

    fn next_step(&self) -> String {
        match self.cause {
            LostBy::Closed => "see what that process said last, and whether its machine ran out of memory; then continue with --resume",
            LostBy::Silent(_) => "check that process, its machine and the network; then continue with --resume",
            LostBy::Hangs(_) => {
                "see what that rank does; if it is only slow, raise run.peer_timeout_secs; then continue with --resume"
            }
            LostBy::OtherCall { .. } | LostBy::Ended | LostBy::Disagrees(_) => {
                "start every process with the same program, plugins, config and data"
            }
            LostBy::Unreached(_) => {
                "let the machines reach each other on all ports above 1023: processes watch each other over TCP"
            }
            LostBy::Reported(_) => "fix the reported error; then continue with --resume",
        }
        .to_owned()
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ranks {
            0 | 1 => write!(f, "rank {}", self.rank)?,
            ranks => write!(f, "ranks {} to {}", self.rank, self.rank + ranks - 1)?,
        }
        if let Some((process, host)) = &self.process {
            write!(f, " (process {process} on {host})")?;
        }
        match self.step {
            0 => write!(f, ", before the first step")?,
            step => write!(f, ", step {step}")?,
        }
        match &self.place {
            CallPosition::Start => {}
            CallPosition::In(call) => write!(f, ", in {call}")?,
            CallPosition::After(call) => write!(f, ", after {call}")?,
        }
        write!(f, ": {}", self.cause)?;
        match &self.waiting {
            Some((rank, call)) => write!(f, "; rank {rank} waits in {call}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for LostBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LostBy::Closed => {
                f.write_str("its process ended without a message (killed, or crashed)")
            }
            LostBy::Silent(secs) => write!(f, "its process gave no sign of life for {secs} s"),
            LostBy::Hangs(secs) => write!(f, "it hangs: no sign of life for {secs} s"),
            LostBy::OtherCall {
                found,
                other,
                expected,
            } => write!(f, "it makes {found}, where rank {other} makes {expected}"),
            LostBy::Ended => f.write_str("its run came to an end before that of the others"),
            LostBy::Reported(message) => write!(f, "it failed: {message}"),
            LostBy::Disagrees(message) | LostBy::Unreached(message) => f.write_str(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_rank_process_host_step_and_call() {
        let lost = Lost {
            ranks: 2,
            process: Some((1, "node-b".into())),
            step: 7,
            place: CallPosition::In("call 41 of shards, all_gather `unit 3`".into()),
            waiting: Some((0, "call 42 of shards, all_gather `unit 4`".into())),
            ..Lost::of(2, LostBy::Silent(8))
        };
        assert_eq!(
            lost.to_string(),
            "ranks 2 to 3 (process 1 on node-b), step 7, in call 41 of shards, all_gather `unit 3`: its process gave no \
             sign of life for 8 s; rank 0 waits in call 42 of shards, all_gather `unit 4`"
        );
        let reported = Lost::reported(1, "not enough memory").to_string();
        assert_eq!(
            reported,
            "rank 1, before the first step: it failed: not enough memory"
        );
    }
}
