//! A rank's way to the others: what it calls together with them.

use std::ptr::NonNull;

use espalier_interface::DType;

use super::World;
use crate::Error;

/// Which ranks a call is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Among {
    /// Those that share what is cut.
    Shards,
    /// Those that hold the same part of it.
    Replicas,
    /// All.
    World,
}

/// Memory that the host reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub address: NonNull<u8>,
    /// Length in bytes.
    pub bytes: u64,
}

/// A rank's ends of the groups that it belongs to.
pub struct Peers {
    world: World,
    rank: u32,
}

impl Peers {
    /// A world of one rank: its calls are copies.
    pub fn alone() -> Self {
        Peers {
            world: World::ONE,
            rank: 0,
        }
    }

    /// This rank's number.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// All ranks.
    pub fn world(&self) -> World {
        self.world
    }

    /// This rank's place among those that share what is cut, and how many they are.
    pub fn shard(&self) -> (u32, u32) {
        (0, 1)
    }

    /// Every rank's `send`, one after the other, in `recv`. `send` may be its own place in `recv`.
    ///
    /// # Errors
    /// Where a rank is lost.
    pub fn all_gather(&self, _: Among, _: &str, send: Span, recv: Span) -> Result<(), Error> {
        copy(send, recv);
        Ok(())
    }

    /// This rank's part of the sum of every rank's `send`, in `recv`.
    ///
    /// # Errors
    /// As [`Peers::all_gather`].
    pub fn reduce_scatter(
        &self,
        _: Among,
        _: &str,
        _: DType,
        send: Span,
        recv: Span,
    ) -> Result<(), Error> {
        copy(send, recv);
        Ok(())
    }

    /// The sum of every rank's `data`, in its place.
    ///
    /// # Errors
    /// As [`Peers::all_gather`].
    pub fn all_reduce(&self, _: Among, _: &str, _: DType, _: Span) -> Result<(), Error> {
        Ok(())
    }

    /// What every rank of the world says, by rank.
    ///
    /// # Errors
    /// As [`Peers::all_gather`].
    pub fn exchange(&self, _: &str, said: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        Ok(vec![said.to_vec()])
    }

    /// Gives the groups up: calls that wait return soon, later ones at once.
    pub fn abort(&self) {}
}

/// Copies bytes that may be the same ones.
#[allow(unsafe_code)]
fn copy(from: Span, to: Span) {
    assert_eq!(from.bytes, to.bytes, "bytes of a call among one rank");
    // SAFETY: whoever makes a span vouches for its bytes; `copy` allows an overlap.
    unsafe {
        std::ptr::copy(
            from.address.as_ptr(),
            to.address.as_ptr(),
            from.bytes as usize,
        );
    }
}
