//! A rank among those that load together: what it says to the others, and what they come to.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::ranks::{Lost, Peers};
use crate::team::Team;
use crate::world::World;

/// A rank, to those who load.
pub trait Member {
    /// Its number.
    fn rank(&self) -> u32;

    /// All ranks.
    fn world(&self) -> World;

    /// What every rank says, by rank; returns when all have said it.
    ///
    /// # Errors
    /// Where a rank is lost.
    fn exchange(&self, label: &str, said: &[u8]) -> Result<Vec<Vec<u8>>, Error>;
}

impl Member for Peers {
    fn rank(&self) -> u32 {
        Peers::rank(self)
    }

    fn world(&self) -> World {
        Peers::world(self)
    }

    fn exchange(&self, label: &str, said: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        Peers::exchange(self, label, said)
    }
}

/// All ranks of a process say the same: the first speaks for them.
impl Member for Team {
    fn rank(&self) -> u32 {
        self.first().peers().rank()
    }

    fn world(&self) -> World {
        Team::world(self)
    }

    fn exchange(&self, label: &str, said: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        Team::exchange(self, label, said)
    }
}

/// How a rank's part of something went.
#[derive(Serialize, Deserialize)]
enum Said<T> {
    Done(T),
    Interrupted(i32),
    Failed(String),
}

/// What all ranks did, by rank, where none failed: all of them go on, or none does.
///
/// # Errors
/// This rank's own; else the signal that another one was stopped by, or [`Error::Peer`] for the first that failed.
pub(crate) fn together<T: Serialize + DeserializeOwned>(
    member: &dyn Member,
    label: &str,
    own: Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let (said, own) = match own {
        Ok(done) => (Said::Done(done), Ok(())),
        Err(Error::Interrupted { signal }) => (
            Said::Interrupted(signal),
            Err(Error::Interrupted { signal }),
        ),
        Err(error) => (Said::Failed(error.to_string()), Err(error)),
    };
    let said = serde_json::to_vec(&said).expect("plain data");
    let all = member.exchange(label, &said);
    own?;
    let mut done = Vec::new();
    let mut failed = None;
    for (rank, said) in all?.iter().enumerate() {
        let rank = rank as u32;
        let said: Said<T> = serde_json::from_slice(said).map_err(|error| {
            let what = format!("{label}: what it said cannot be read: {error}");
            Error::Peer(Lost::told(rank, what))
        })?;
        match said {
            Said::Done(one) => done.push(one),
            Said::Interrupted(signal) => return Err(Error::Interrupted { signal }),
            Said::Failed(message) => failed = failed.or(Some(Lost::told(rank, message))),
        }
    }
    match failed {
        None => Ok(done),
        Some(lost) => Err(Error::Peer(lost)),
    }
}

/// What this rank did, where no other rank failed either.
///
/// # Errors
/// As [`together`].
pub(crate) fn agree<T>(
    member: &dyn Member,
    label: &str,
    own: Result<T, Error>,
) -> Result<T, Error> {
    let (done, said) = match own {
        Ok(done) => (Some(done), Ok(())),
        Err(error) => (None, Err(error)),
    };
    together(member, label, said)?;
    Ok(done.expect("a rank is given its own error"))
}
