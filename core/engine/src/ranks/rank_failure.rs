//! Which ranks know of a failure.

use espalier_interface::ErrorCode;

use crate::Error;

/// An error that a rank can end with.
pub trait RankFailure: From<Error> + std::error::Error + Send + 'static {
    /// Which ranks know of it.
    fn reach(&self) -> Reach;

    /// The signal that asked to stop, where it is one.
    fn signal(&self) -> Option<i32>;
}

/// Which ranks know of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// This rank only: the others have to be informed.
    ThisRank,
    /// This rank only, in which a plugin panicked.
    Panic,
    /// This rank, whose call with others failed: they may know the cause.
    Call,
    /// All ranks come to the same failure.
    AllRanks,
    /// Another rank failed, and this one knows of it.
    FromPeer,
}

impl RankFailure for Error {
    fn reach(&self) -> Reach {
        match self {
            Error::NotFinite(_) | Error::Interrupted(_) => Reach::AllRanks,
            Error::Peer(_) => Reach::FromPeer,
            Error::Plugin(failure) if failure.source.code == ErrorCode::PANIC => Reach::Panic,
            Error::Plugin(failure) if failure.source.code == ErrorCode::PEER => Reach::Call,
            _ => Reach::ThisRank,
        }
    }

    fn signal(&self) -> Option<i32> {
        match self {
            Error::Interrupted(interrupted) => Some(interrupted.signal),
            _ => None,
        }
    }
}
