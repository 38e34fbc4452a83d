//! A member of a group: a call -> NCCL's calls and sums on its stream.
#![allow(unsafe_code)] // Calls of NCCL and of the driver.

use std::ops::Range;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{CUevent, CUstream};
use cudarc::nccl::sys::{ncclComm_t, ncclDataType_t};
use espalier_interface::{CollectiveCall, CollectiveOp, Group, PluginError, Result};

use super::DTYPES;
use super::communicator::Communicator;
use super::place::Place;
use super::sums::Sums;

/// What calls move.
const BYTES: ncclDataType_t = ncclDataType_t::ncclUint8;

/// An event without a time.
const WITHOUT_TIME: u32 = 2;

/// A member.
pub struct Member {
    communicator: Arc<Communicator>,
    sums: Sums,
    index: usize,
    members: usize,
    last: Mutex<Last>,
}

/// The last call.
struct Last {
    /// Its stream; null where there was no call.
    stream: CUstream,
    /// Recorded behind it.
    done: CUevent,
}

// SAFETY: streams and events may be used from any thread.
unsafe impl Send for Last {}

/// Bytes on the card that go to another member, or come from it.
#[derive(Clone, Copy)]
struct Part {
    peer: usize,
    address: u64,
    bytes: usize,
}

impl Member {
    /// A member at `place`.
    ///
    /// # Errors
    /// `DEVICE`.
    pub fn new(communicator: Arc<Communicator>, sums: Sums, place: &Place) -> Result<Self> {
        let (card, mut done) = (communicator.card().clone(), null_mut());
        card.enter()?;
        // SAFETY: the driver writes a handle.
        let code = unsafe { (card.driver.event)(&raw mut done, WITHOUT_TIME) };
        card.called("event", code)?;
        Ok(Member {
            communicator,
            sums,
            index: place.member as usize,
            members: place.members,
            last: Mutex::new(Last {
                stream: null_mut(),
                done,
            }),
        })
    }

    fn others(&self) -> impl Iterator<Item = usize> {
        let own = self.index;
        (0..self.members).filter(move |member| *member != own)
    }

    /// Sends and receives parts, as one.
    fn exchange(
        &self,
        call: &CollectiveCall,
        [sent, received]: [&[Part]; 2],
        stream: CUstream,
    ) -> Result<()> {
        let library = self.communicator.library();
        let put = |raw: ncclComm_t| {
            let is_some = |part: &&Part| part.bytes > 0;
            // SAFETY: the host guarantees the memory of a call, the slots are this group's, and the
            // calls of a stream wait for one another.
            let sends = sent.iter().filter(is_some).map(|part| unsafe {
                let from = part.address as *const _;
                (library.send)(from, part.bytes, BYTES, part.peer as i32, raw, stream)
            });
            // SAFETY: as above.
            let receives = received.iter().filter(is_some).map(|part| unsafe {
                let to = part.address as *mut _;
                (library.receive)(to, part.bytes, BYTES, part.peer as i32, raw, stream)
            });
            first_failure(sends.chain(receives))
        };
        self.communicator.together(&call.to_string(), put)
    }

    /// Puts this member's part of a sum on the stream: of the elements `slices(member)` of `send`
    /// that every member sums, its own to `sum`.
    fn add(
        &self,
        call: &CollectiveCall,
        slices: impl Fn(usize) -> Range<usize>,
        sum: *mut u8,
        stream: CUstream,
    ) -> Result<()> {
        let own = slices(self.index);
        let parts = |of: &dyn Fn(usize) -> (u64, usize)| -> Vec<Part> {
            let part = |peer| {
                let (address, elements) = of(peer);
                let bytes = call.bytes(elements);
                Part {
                    peer,
                    address,
                    bytes,
                }
            };
            self.others().map(part).collect()
        };
        let sent = parts(&|peer| {
            let slice = slices(peer);
            (call.send_at(slice.start) as u64, slice.len())
        });
        let received = parts(&|peer| (self.sums.slot(self.index, peer), own.len()));
        self.exchange(call, [&sent, &received], stream)?;
        let places = [call.send_at(own.start) as u64, sum as u64];
        let counted = [self.index, self.members];
        self.sums
            .add(call.dtype, counted, places, own.len(), stream)
    }

    fn reduce_scatter(&self, call: &CollectiveCall, stream: CUstream) -> Result<()> {
        let count = call.count as usize;
        let most = self.sums.slot_bytes() / call.bytes(1);
        for start in (0..count).step_by(most) {
            let end = count.min(start + most);
            let slices = |member: usize| member * count + start..member * count + end;
            self.add(call, slices, call.recv_at(start), stream)?;
        }
        Ok(())
    }

    /// Each member adds a slice, then all send theirs.
    fn all_reduce(&self, call: &CollectiveCall, stream: CUstream) -> Result<()> {
        let count = call.count as usize;
        let most = self.sums.slot_bytes() / call.bytes(1) * self.members;
        for start in (0..count).step_by(most) {
            let within = CollectiveCall {
                count: (count - start).min(most) as u64,
                send: call.send_at(start),
                recv: call.recv_at(start),
                ..*call
            };
            let slices = |member| within.slice(member, self.members);
            let own = slices(self.index);
            let sum = within.recv_at(own.start);
            self.add(&within, slices, sum, stream)?;
            let parts = |slice_of: &dyn Fn(usize) -> Range<usize>| -> Vec<Part> {
                let part = |peer| {
                    let slice = slice_of(peer);
                    Part {
                        peer,
                        address: within.recv_at(slice.start) as u64,
                        bytes: within.bytes(slice.len()),
                    }
                };
                self.others().map(part).collect()
            };
            let [sent, received] = [parts(&|_| own.clone()), parts(&slices)];
            self.exchange(&within, [&sent, &received], stream)?;
        }
        Ok(())
    }

    /// A call that NCCL has.
    fn moved(&self, call: &CollectiveCall, stream: CUstream) -> Result<()> {
        let library = self.communicator.library();
        let (from, to) = (call.send.cast(), call.recv.cast());
        let bytes = call.bytes(call.count as usize);
        let put = |raw: ncclComm_t| {
            // SAFETY: the host guarantees the memory of a call.
            unsafe {
                match call.op {
                    CollectiveOp::ALL_GATHER => {
                        (library.all_gather)(from, to, bytes, BYTES, raw, stream)
                    }
                    _ => (library.broadcast)(from, to, bytes, BYTES, call.root as i32, raw, stream),
                }
            }
        };
        self.communicator.together(&call.to_string(), put)
    }

    /// Makes `stream` wait for the last call, where that was on another one: the group's memory
    /// and NCCL's are one for all streams.
    fn follow(&self, last: &Last, stream: CUstream) -> Result<()> {
        if last.stream.is_null() || last.stream == stream {
            return Ok(());
        }
        let card = self.communicator.card();
        card.enter()?;
        // SAFETY: the event lives as long as `self`, the stream is the host's.
        card.called("wait for a call", unsafe {
            (card.driver.wait)(stream, last.done, 0)
        })
    }
}

impl Group for Member {
    fn call(&self, call: &CollectiveCall) -> Result<()> {
        call.check_operands(self.members, &DTYPES)?;
        if call.stream.is_null() {
            let message = format!("expected a call on a stream, found {call} on none");
            return Err(PluginError::unsupported(message));
        }
        if call.count == 0 {
            return Ok(());
        }
        let stream: CUstream = call.stream.cast_mut().cast();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.follow(&last, stream)?;
        match call.op {
            CollectiveOp::ALL_GATHER | CollectiveOp::BROADCAST => self.moved(call, stream)?,
            CollectiveOp::REDUCE_SCATTER => self.reduce_scatter(call, stream)?,
            _ => self.all_reduce(call, stream)?,
        }
        let card = self.communicator.card();
        // SAFETY: the event lives as long as `self`, the stream is the host's.
        card.called("record", unsafe { (card.driver.record)(last.done, stream) })?;
        last.stream = stream;
        Ok(())
    }

    fn abort(&self) {
        self.communicator.give_up();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.communicator.leave();
        let last = self.last.get_mut().unwrap_or_else(PoisonError::into_inner);
        let card = self.communicator.card();
        if card.enter().is_ok() {
            // SAFETY: the driver made the event. An error is one of earlier work.
            unsafe { (card.driver.free_event)(last.done) };
        }
    }
}

/// The first code that is a failure, else that of the last call.
fn first_failure(codes: impl Iterator<Item = u32>) -> u32 {
    let mut last = 0;
    for code in codes {
        last = code;
        if !super::communicator::is_sound(code) {
            return code;
        }
    }
    last
}
