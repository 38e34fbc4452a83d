//! A rank among those that load together: messages between them, and a common outcome.

use espalier_system::stop::Interrupted;
use espalier_system::world::World;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::ranks::{Lost, Peers, RankFailure};
use crate::team::Team;

/// A rank that takes part in loading.
pub trait Member {
    /// Its number.
    fn rank(&self) -> u32;

    /// All ranks.
    fn world(&self) -> World;

    /// Sends `sent` to every rank and returns what each rank sent, by rank.
    ///
    /// # Errors
    /// `Error::Peer` where a rank is lost.
    fn exchange(&self, label: &str, sent: &[u8]) -> Result<Vec<Vec<u8>>, Error>;
}

impl Member for Peers {
    fn rank(&self) -> u32 {
        Peers::rank(self)
    }

    fn world(&self) -> World {
        Peers::world(self)
    }

    fn exchange(&self, label: &str, sent: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        Peers::exchange(self, label, sent)
    }
}

/// All ranks of a process send the same, so the first one sends it.
impl Member for Team {
    fn rank(&self) -> u32 {
        self.first().peers().rank()
    }

    fn world(&self) -> World {
        Team::world(self)
    }

    fn exchange(&self, label: &str, sent: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        Team::exchange(self, label, sent)
    }
}

/// The outcome of a rank's part.
#[derive(Serialize, Deserialize)]
enum Sent<T> {
    Done(T),
    Interrupted(i32),
    Failed(String),
}

/// The results of all ranks, by rank. All ranks continue, or none does.
///
/// # Errors
/// This rank's own error. Else the signal that stopped another rank, or [`Error::Peer`] for the
/// first rank that failed.
pub fn together<T: Serialize + DeserializeOwned, E: RankFailure>(
    member: &dyn Member,
    label: &str,
    own: Result<T, E>,
) -> Result<Vec<T>, E> {
    let (sent, own) = match own {
        Ok(done) => (Sent::Done(done), Ok(())),
        Err(error) => match error.signal() {
            Some(signal) => (Sent::Interrupted(signal), Err(error)),
            None => (Sent::Failed(error.to_string()), Err(error)),
        },
    };
    let sent = serde_json::to_vec(&sent).expect("plain data");
    let all = member.exchange(label, &sent);
    own?;
    let mut done = Vec::new();
    let mut failed = None;
    for (rank, sent) in all?.iter().enumerate() {
        let rank = rank as u32;
        let sent: Sent<T> = serde_json::from_slice(sent).map_err(|error| {
            let what = format!("{label}: its message cannot be parsed: {error}");
            Error::Peer(Lost::reported(rank, what))
        })?;
        match sent {
            Sent::Done(one) => done.push(one),
            Sent::Interrupted(signal) => {
                return Err(Error::Interrupted(Interrupted { signal }).into());
            }
            Sent::Failed(message) => failed = failed.or(Some(Lost::reported(rank, message))),
        }
    }
    match failed {
        None => Ok(done),
        Some(lost) => Err(Error::Peer(lost).into()),
    }
}

/// This rank's result, where no rank failed.
///
/// # Errors
/// As [`together`].
pub fn agree<T, E: RankFailure>(
    member: &dyn Member,
    label: &str,
    own: Result<T, E>,
) -> Result<T, E> {
    let (done, sent) = match own {
        Ok(done) => (Some(done), Ok(())),
        Err(error) => (None, Err(error)),
    };
    together(member, label, sent)?;
    Ok(done.expect("a rank is given its own error"))
}
