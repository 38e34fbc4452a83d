//! Collective calls on a device's memory. Where the host reaches it, they use the memory itself.
//! Else they copy its bytes through pinned memory, a part at a time.

use std::ops::Range;

use espalier_interface::{BufferRange, DType, PluginError, Stream};
use espalier_plan::staging::ALIGNMENT;

use super::Executor;
use super::storage::part;
use crate::error::{Result, schedule_failure};
use crate::ranks::{Among, DeviceSpan, OnStream, Span};

/// A call of a task: its name for the watch, and the stream of the task's lane.
#[derive(Clone, Copy)]
pub(super) struct TaskCall<'a> {
    pub(super) label: &'a str,
    pub(super) stream: Stream,
}

impl Executor {
    /// Writes the part `send` of each rank that shares a cut unit to `recv`, after earlier work of
    /// the stream. `send` may be this rank's part of `recv`.
    ///
    /// # Errors
    /// `Error::Peer` where a rank is lost; `Error::Plugin` where a call to the backend failed, or
    /// nothing reaches the device's memory.
    pub(super) fn all_gather(
        &self,
        call: TaskCall<'_>,
        send: BufferRange,
        recv: BufferRange,
    ) -> Result<()> {
        let TaskCall { label, stream } = call;
        let (own, parts) = self.peers.shard();
        if self.peers.has_device_groups() {
            if parts == 1 {
                return self.copy_on(stream, send, recv);
            }
            let on = self.on_stream(stream, send, recv)?;
            return self.peers.all_gather_on(Among::Shards, label, on);
        }
        if let (Some(send), Some(recv)) = (self.span(send), self.span(recv)) {
            self.complete(stream)?;
            return self.peers.all_gather(Among::Shards, label, send, recv);
        }
        for within in self.turns(send.bytes, parts)? {
            let slots = Slots::of(self.staging()?, within.end - within.start);
            let whole = slots.first(parts);
            self.copy_on(stream, part(send, &within, 1), slots.of_member(own))?;
            self.complete(stream)?;
            let (sent, received) = (self.pinned(slots.of_member(own))?, self.pinned(whole)?);
            self.peers
                .all_gather(Among::Shards, label, sent, received)?;
            for member in 0..parts {
                let to = of_member(recv, send.bytes, member);
                self.copy_on(stream, slots.of_member(member), part(to, &within, 1))?;
            }
        }
        Ok(())
    }

    /// Writes this rank's part of the sum of every rank's `send` to `recv`, after earlier work of
    /// the stream. The content of `send` is undefined afterwards.
    ///
    /// # Errors
    /// As [`Executor::all_gather`].
    pub(super) fn reduce_scatter(
        &self,
        call: TaskCall<'_>,
        dtype: DType,
        send: BufferRange,
        recv: BufferRange,
    ) -> Result<()> {
        let TaskCall { label, stream } = call;
        let replicated = self.peers.world().ranks > self.peers.shard().1;
        let (own, parts) = self.peers.shard();
        if self.peers.has_device_groups() {
            let on = self.on_stream(stream, send, recv)?;
            if parts == 1 {
                self.copy_on(stream, send, recv)?;
            } else {
                self.peers
                    .reduce_scatter_on(Among::Shards, label, dtype, on)?;
            }
            let sum = OnStream {
                send: on.recv,
                ..on
            };
            if replicated {
                self.peers
                    .all_reduce_on(Among::Replicas, label, dtype, sum)?;
            }
            return Ok(());
        }
        let reduce = |send, recv| -> Result<()> {
            let peers = &self.peers;
            peers.reduce_scatter(Among::Shards, label, dtype, send, recv)?;
            if replicated {
                peers.all_reduce(Among::Replicas, label, dtype, recv)?;
            }
            Ok(())
        };
        if let (Some(send), Some(recv)) = (self.span(send), self.span(recv)) {
            self.complete(stream)?;
            return reduce(send, recv);
        }
        for within in self.turns(recv.bytes, parts)? {
            let slots = Slots::of(self.staging()?, within.end - within.start);
            for member in 0..parts {
                let from = of_member(send, recv.bytes, member);
                self.copy_on(stream, part(from, &within, 1), slots.of_member(member))?;
            }
            self.complete(stream)?;
            let sum = self.pinned(slots.of_member(own))?;
            reduce(self.pinned(slots.first(parts))?, sum)?;
            self.copy_on(stream, slots.of_member(own), part(recv, &within, 1))?;
        }
        Ok(())
    }

    /// Replaces `data` by the sum of every rank's `data`, after earlier work of the stream.
    ///
    /// # Errors
    /// As [`Executor::all_gather`].
    pub(super) fn all_reduce(
        &self,
        call: TaskCall<'_>,
        dtype: DType,
        data: BufferRange,
    ) -> Result<()> {
        let TaskCall { label, stream } = call;
        if self.peers.has_device_groups() {
            let on = self.on_stream(stream, data, data)?;
            return self.peers.all_reduce_on(Among::World, label, dtype, on);
        }
        if let Some(data) = self.span(data) {
            self.complete(stream)?;
            return self.peers.all_reduce(Among::World, label, dtype, data);
        }
        for within in self.turns(data.bytes, 1)? {
            let slot = Slots::of(self.staging()?, within.end - within.start).of_member(0);
            self.copy_on(stream, part(data, &within, 1), slot)?;
            self.complete(stream)?;
            let sum = self.pinned(slot)?;
            self.peers.all_reduce(Among::World, label, dtype, sum)?;
            self.copy_on(stream, slot, part(data, &within, 1))?;
        }
        Ok(())
    }

    /// The bytes of a member's part that pass in each turn of a call with a part from each of
    /// `members`. All ranks have the same memory for it and so take the same turns.
    fn turns(&self, bytes: u64, members: u32) -> Result<impl Iterator<Item = Range<u64>> + use<>> {
        let room = self.staging()?.bytes / u64::from(members);
        let each = (room - room % ALIGNMENT).max(ALIGNMENT);
        let starts = (0..bytes).step_by(each as usize);
        Ok(starts.map(move |start| start..bytes.min(start + each)))
    }

    /// Ranges and a stream by their native names.
    fn on_stream(&self, stream: Stream, send: BufferRange, recv: BufferRange) -> Result<OnStream> {
        let span = |range: BufferRange| {
            let address = self.device.native_address(range)?;
            let bytes = range.bytes;
            Some(DeviceSpan { address, bytes })
        };
        let found = || {
            let (send, recv) = (span(send)?, span(recv)?);
            let stream = self.device.native_stream(stream)?;
            Some(OnStream { send, recv, stream })
        };
        found().ok_or_else(|| {
            schedule_failure(PluginError::unsupported(
                "the device names no native address or stream, which the collective of \
                 run.device_collective needs: leave that key out",
            ))
        })
    }

    fn copy_on(&self, stream: Stream, from: BufferRange, to: BufferRange) -> Result<()> {
        if from == to {
            return Ok(());
        }
        self.since_wait
            .during("copy", self.device.copy(from, to, stream))
    }

    fn staging(&self) -> Result<BufferRange> {
        self.storage.staging().ok_or_else(unreachable_memory)
    }

    /// A range of the pinned memory.
    fn pinned(&self, range: BufferRange) -> Result<Span> {
        self.span(range).ok_or_else(unreachable_memory)
    }

    /// The host's address of a range; none where the host cannot reach it.
    fn span(&self, range: BufferRange) -> Option<Span> {
        let address = self.device.host_address(range)?;
        let bytes = range.bytes;
        Some(Span { address, bytes })
    }
}

/// The parts of several members, one after the other, at the beginning of the pinned memory.
struct Slots {
    staging: BufferRange,
    each: u64,
}

impl Slots {
    fn of(staging: BufferRange, each: u64) -> Self {
        Slots { staging, each }
    }

    fn of_member(&self, member: u32) -> BufferRange {
        of_member(self.staging, self.each, member)
    }

    fn first(&self, members: u32) -> BufferRange {
        part(self.staging, &(0..u64::from(members) * self.each), 1)
    }
}

/// Part number `member` of `whole`, of parts of `bytes` bytes.
fn of_member(whole: BufferRange, bytes: u64, member: u32) -> BufferRange {
    let first = u64::from(member) * bytes;
    part(whole, &(first..first + bytes), 1)
}

fn unreachable_memory() -> crate::Error {
    schedule_failure(PluginError::unsupported(
        "for a collective call of the schedule, expected memory that the host can reach or pinned \
         memory with a host address, and the device has neither: use a backend that has one \
         (`host_address` of memory of kind `PINNED`), or one rank",
    ))
}
