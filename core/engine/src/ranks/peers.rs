//! A rank's collective calls with the other ranks.

mod both;
mod counts;
mod join;
mod layout;
mod on_device;
mod route;

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use espalier_interface::{DType, ErrorCode, PluginError};
use espalier_system::world::World;

use super::{Acting, Busy, Watch};
use crate::Error;

use counts::Counter;
pub use counts::{CallKind, Count, Counts};
pub use join::join;
use on_device::DeviceGroups;
pub use on_device::{DeviceSpan, DoneCalls, OnStream};
use route::{Alone, Route};

/// Which ranks a call is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Among {
    /// The ranks that share cut units.
    Shards,
    /// Those that hold the same part of it.
    Replicas,
    /// All.
    World,
}

impl Among {
    /// All of them, in the order of their numbers.
    pub const ALL: [Among; 3] = [Among::Shards, Among::Replicas, Among::World];
}

impl fmt::Display for Among {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Among::Shards => "shards",
            Among::Replicas => "replicas",
            Among::World => "world",
        })
    }
}

/// A call as the watch names it.
struct Call<'a> {
    kind: CallKind,
    label: &'a str,
    bytes: u64,
}

impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call { kind, label, bytes } = self;
        write!(f, "{kind} `{label}` {bytes} bytes")
    }
}

/// Memory that the host can address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub address: NonNull<u8>,
    /// Length in bytes.
    pub bytes: u64,
}

impl Span {
    /// The memory of `bytes`.
    pub fn of(bytes: &mut [u8]) -> Span {
        Span {
            bytes: bytes.len() as u64,
            address: NonNull::from(bytes).cast(),
        }
    }

    /// The same memory, which is only read.
    fn read_only(bytes: &[u8]) -> Span {
        Span {
            bytes: bytes.len() as u64,
            address: NonNull::from(bytes).cast(),
        }
    }
}

/// A rank's membership in its groups. All ranks of a group make its calls in the same order, one
/// after the other.
pub struct Peers {
    world: World,
    rank: u32,
    /// Its place among the shards, and their number.
    shard: (u32, u32),
    ends: Arc<Ends>,
    /// The groups of its device; none where calls are made by the host.
    on_device: Option<Arc<DeviceGroups>>,
    /// None for a rank that is alone.
    watch: Option<Arc<Watch>>,
    counter: Counter,
}

/// The memberships by [`Among`].
type Ends = [End; 3];

/// A rank's membership in a group.
struct End {
    /// The group's name, the same for all of its ranks.
    name: String,
    ranks: u64,
    route: Box<dyn Route>,
    /// Calls so far.
    calls: Mutex<u64>,
}

impl Peers {
    /// A world of one rank: its calls are copies.
    pub fn alone() -> Self {
        let ends = Among::ALL.map(|among| End {
            name: among.to_string(),
            ranks: 1,
            route: Box::new(Alone),
            calls: Mutex::new(0),
        });
        Peers {
            world: World::ONE,
            rank: 0,
            shard: (0, 1),
            ends: Arc::new(ends),
            on_device: None,
            watch: None,
            counter: Counter::default(),
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

    /// This rank's index among the ranks that share cut units, and their number.
    pub fn shard(&self) -> (u32, u32) {
        self.shard
    }

    /// Writes every rank's `send`, one after the other, to `recv`. `send` may be this rank's part
    /// of `recv`.
    ///
    /// # Errors
    /// `Error::Peer` where a rank is lost or makes another call.
    ///
    /// # Panics
    /// Where the lengths do not fit the number of ranks.
    pub fn all_gather(
        &self,
        among: Among,
        label: &str,
        send: Span,
        recv: Span,
    ) -> Result<(), Error> {
        let ranks = self.end(among).ranks;
        assert_eq!(recv.bytes, ranks * send.bytes, "all_gather `{label}`");
        let kind = CallKind::AllGather;
        self.counter.add(among, kind, (ranks - 1) * send.bytes);
        let call = Call {
            kind,
            label,
            bytes: recv.bytes,
        };
        self.call(among, call, |route| route.all_gather(send, recv))
    }

    /// Writes this rank's part of the sum of every rank's `send` to `recv`, which may be its own
    /// part of `send`. The content of `send` is undefined afterwards.
    ///
    /// # Errors
    /// As [`Peers::all_gather`].
    ///
    /// # Panics
    /// As [`Peers::all_gather`].
    pub fn reduce_scatter(
        &self,
        among: Among,
        label: &str,
        dtype: DType,
        send: Span,
        recv: Span,
    ) -> Result<(), Error> {
        let ranks = self.end(among).ranks;
        assert_eq!(send.bytes, ranks * recv.bytes, "reduce_scatter `{label}`");
        let kind = CallKind::ReduceScatter;
        self.counter.add(among, kind, (ranks - 1) * recv.bytes);
        let call = Call {
            kind,
            label,
            bytes: send.bytes,
        };
        self.call(among, call, |route| route.reduce_scatter(dtype, send, recv))
    }

    /// Replaces `data` by the sum of every rank's `data`.
    ///
    /// # Errors
    /// As [`Peers::all_gather`].
    pub fn all_reduce(
        &self,
        among: Among,
        label: &str,
        dtype: DType,
        data: Span,
    ) -> Result<(), Error> {
        let ranks = self.end(among).ranks;
        let kind = CallKind::AllReduce;
        let sent = 2 * (ranks - 1) * data.bytes / ranks;
        self.counter.add(among, kind, sent);
        let call = Call {
            kind,
            label,
            bytes: data.bytes,
        };
        self.call(among, call, |route| route.all_reduce(dtype, data))
    }

    /// Sends `sent` to all ranks of the world; returns what each sent, by rank. Lengths may differ.
    ///
    /// # Errors
    /// As [`Peers::all_gather`].
    pub fn exchange(&self, label: &str, sent: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let ranks = self.world.ranks as usize;
        let kind = CallKind::Exchange;
        let gather = |sent: &[u8]| {
            let mut received = vec![0; ranks * sent.len()];
            let (send, recv) = (Span::read_only(sent), Span::of(&mut received));
            let call = Call {
                kind,
                label,
                bytes: 0, // lengths differ from rank to rank
            };
            self.call(Among::World, call, |route| route.all_gather(send, recv))
                .map(|()| received)
        };
        let lengths = gather(&(sent.len() as u64).to_le_bytes())?;
        let (lengths, _) = lengths.as_chunks::<8>();
        let lengths = lengths
            .iter()
            .map(|&bytes| u64::from_le_bytes(bytes) as usize);
        let longest = lengths.clone().max().unwrap_or(0);
        let mut padded = sent.to_vec();
        padded.resize(longest, 0);
        let received = gather(&padded)?;
        let sent = (ranks - 1) * (longest + 8);
        self.counter.add(Among::World, kind, sent as u64);
        let parts = lengths.enumerate();
        let part = |(rank, length): (usize, usize)| received[rank * longest..][..length].to_vec();
        Ok(parts.map(part).collect())
    }

    /// A sign of life of this rank.
    pub fn beat(&self) {
        if let Some(watch) = &self.watch {
            watch.beat(self.rank);
        }
    }

    /// This rank is in a call of its device that may take long and gives no sign of life, until
    /// what is returned is dropped. A call that never returns is another watch's matter
    /// (`run.plugin_timeout_secs`).
    pub fn in_device_call(&self, what: &str) -> Option<Busy<'_>> {
        let watch = self.watch.as_ref()?;
        Some(watch.busy(self.rank, what))
    }

    /// This rank begins optimizer step `step`, counted from 1.
    pub fn step(&self, step: u64) {
        if let Some(watch) = &self.watch {
            watch.step(self.rank, step);
        }
    }

    /// A thread acts for this rank until what is returned is dropped: see [`Watch::acts`].
    pub fn acts(&self) -> Option<Acting<'_>> {
        self.watch.as_ref().map(|watch| watch.acts(self.rank))
    }

    /// Tells the others that this rank fails, and aborts its groups. Returns the loss that all
    /// ranks report.
    pub fn failed(&self, what: &str) -> Option<Error> {
        let watch = self.watch.as_ref()?;
        watch.failed(self.rank, what);
        self.abort();
        watch.first_lost()
    }

    /// The loss that made a call of this rank fail, which said `what`. Where none is known soon, it
    /// is this rank's own.
    pub fn blame(&self, what: &str) -> Option<Error> {
        let watch = self.watch.as_ref()?;
        let error = PluginError::new(ErrorCode::PEER, what);
        Some(watch.blame(self.rank, &error))
    }

    /// Whether this rank knows that a rank is lost.
    pub fn has_lost(&self) -> bool {
        self.lost().is_some()
    }

    /// The loss that all ranks report, once there is one.
    pub fn lost(&self) -> Option<Error> {
        self.watch.as_ref()?.first_lost()
    }

    /// The calls so far and the bytes that left this rank.
    pub fn counts(&self) -> Counts {
        self.counter.counts()
    }

    /// Aborts the groups: waiting calls return soon, later ones at once.
    pub fn abort(&self) {
        abort(&self.ends);
    }

    fn end(&self, among: Among) -> &End {
        &self.ends[among as usize]
    }

    /// Makes a call in its turn; the watch sees it.
    fn call(
        &self,
        among: Among,
        call: Call<'_>,
        make: impl FnOnce(&dyn Route) -> Result<(), PluginError>,
    ) -> Result<(), Error> {
        let end = self.end(among);
        let Some(watch) = self.watch.as_ref().filter(|_| end.ranks > 1) else {
            return make(end.route.as_ref()).map_err(|error| panic!("a rank alone: {error}"));
        };
        let mut calls = end.calls.lock().unwrap_or_else(PoisonError::into_inner);
        *calls += 1;
        let inside = watch.enter(self.rank, &end.name, *calls, &call.to_string());
        let made = make(end.route.as_ref());
        // The cause is looked up while this rank still counts as being in the call.
        let made = made.map_err(|error| watch.blame(self.rank, &error));
        drop(inside);
        made
    }
}

fn abort(ends: &Ends) {
    for end in ends {
        end.route.abort();
    }
}
