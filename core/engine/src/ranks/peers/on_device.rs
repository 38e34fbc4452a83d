//! A rank's groups on its device: calls that are put on a stream of the device, beside the groups
//! of the host, which stay the control plane.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use espalier_interface::{
    Collective, CollectiveCall, CollectiveOp, DType, Group, JoinRequest, MemberDevice, PluginError,
};
use espalier_registry::Chosen;

use super::layout::Layout;
use super::{Among, Call, CallKind, Peers};
use crate::Error;

/// Memory of a device, by its native address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSpan {
    /// First byte.
    pub address: NonNull<u8>,
    /// Length in bytes.
    pub bytes: u64,
}

/// What a call on a device works on: native addresses, and the native handle of its stream.
#[derive(Clone, Copy, Debug)]
pub struct OnStream {
    /// The bytes sent.
    pub send: DeviceSpan,
    /// The bytes received.
    pub recv: DeviceSpan,
    /// The stream.
    pub stream: NonNull<()>,
}

/// The groups by [`Among`]; none for a rank that is alone in one.
pub(super) struct DeviceGroups {
    groups: [Option<Box<dyn Group>>; 3],
    /// Calls that may not be done.
    open: Mutex<Vec<OpenCall>>,
}

/// A call that a stream was given.
struct OpenCall {
    /// The stream's native handle.
    stream: usize,
    /// As the watch numbers it.
    id: u64,
}

/// Which calls of a device are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoneCalls {
    /// Those of all streams.
    All,
    /// Those of the stream with this native handle.
    Of(Option<NonNull<()>>),
}

/// A call: its kind for the counts, and its members' operands.
struct Operands {
    kind: CallKind,
    op: CollectiveOp,
    dtype: DType,
    /// Elements; see the operation.
    count: u64,
    /// Bytes that leave this rank.
    sent: u64,
    /// Bytes that the watch names.
    named: u64,
}

impl Peers {
    /// Joins the groups of this rank once more, on its device. Every rank calls this at once. The
    /// first rank of a group invites; the groups of the host carry the invitation.
    ///
    /// # Errors
    /// `Error::Plugin` where the collective fails; `Error::Peer` where a rank is lost.
    pub fn join_devices(
        &mut self,
        by: &Chosen<dyn Collective>,
        device: &MemberDevice,
        timeout: Duration,
    ) -> Result<(), Error> {
        let joined = self.joined_on_device(by, device, timeout);
        let groups = joined.inspect_err(|error| drop(self.failed(&error.to_string())))?;
        let groups = Arc::new(DeviceGroups {
            groups,
            open: Mutex::default(),
        });
        if let Some(watch) = &self.watch {
            let weak = Arc::downgrade(&groups);
            watch.on_abort(move || {
                if let Some(groups) = weak.upgrade() {
                    groups
                        .groups
                        .iter()
                        .flatten()
                        .for_each(|group| group.abort());
                }
            });
        }
        self.on_device = Some(groups);
        Ok(())
    }

    fn joined_on_device(
        &self,
        by: &Chosen<dyn Collective>,
        device: &MemberDevice,
        timeout: Duration,
    ) -> Result<[Option<Box<dyn Group>>; 3], Error> {
        let failed = |call: &str, error: PluginError| Error::from(by.failed(call, error));
        let mut groups = [None, None, None];
        for among in Among::ALL {
            let layout = Layout::of(&self.world, self.shard.1, self.rank, among);
            let several = layout.ranks.len() > 1;
            let own = if several && layout.index == 0 {
                let invited = by.plugin.invite();
                invited.map_err(|error| failed("invite", error))?
            } else {
                Vec::new()
            };
            let invitations = self.exchange("invitations to groups on devices", &own)?;
            if !several {
                continue;
            }
            let first = layout.ranks[0] as usize;
            let joined = by.plugin.join(&JoinRequest {
                group: format!("{} on devices", layout.name),
                members: layout.ranks,
                member: layout.index,
                size: self.world.ranks,
                timeout_secs: timeout.as_secs().max(1),
                device: Some(device.clone()),
                invitation: invitations[first].clone(),
            });
            groups[among as usize] = Some(joined.map_err(|error| failed("join", error))?);
        }
        Ok(groups)
    }

    /// Whether calls on device memory are put on the device's streams.
    pub fn has_device_groups(&self) -> bool {
        self.on_device.is_some()
    }

    /// As [`Peers::all_gather`], on a stream.
    ///
    /// # Errors
    /// As [`Peers::all_gather`]. A call that fails later fails the stream.
    ///
    /// # Panics
    /// Where this rank has no groups on its device.
    pub fn all_gather_on(&self, among: Among, label: &str, on: OnStream) -> Result<(), Error> {
        let bytes = on.send.bytes;
        let operands = Operands {
            kind: CallKind::AllGather,
            op: CollectiveOp::ALL_GATHER,
            dtype: DType::U8,
            count: bytes,
            sent: (self.end(among).ranks - 1) * bytes,
            named: on.recv.bytes,
        };
        self.put(among, label, operands, on)
    }

    /// As [`Peers::reduce_scatter`], on a stream.
    ///
    /// # Errors
    /// As [`Peers::all_gather_on`].
    ///
    /// # Panics
    /// As [`Peers::all_gather_on`].
    pub fn reduce_scatter_on(
        &self,
        among: Among,
        label: &str,
        dtype: DType,
        on: OnStream,
    ) -> Result<(), Error> {
        let bytes = on.recv.bytes;
        let operands = Operands {
            kind: CallKind::ReduceScatter,
            op: CollectiveOp::REDUCE_SCATTER,
            dtype,
            count: bytes / dtype.bytes(),
            sent: (self.end(among).ranks - 1) * bytes,
            named: on.send.bytes,
        };
        self.put(among, label, operands, on)
    }

    /// As [`Peers::all_reduce`], on a stream.
    ///
    /// # Errors
    /// As [`Peers::all_gather_on`].
    ///
    /// # Panics
    /// As [`Peers::all_gather_on`].
    pub fn all_reduce_on(
        &self,
        among: Among,
        label: &str,
        dtype: DType,
        on: OnStream,
    ) -> Result<(), Error> {
        let (bytes, ranks) = (on.recv.bytes, self.end(among).ranks);
        let operands = Operands {
            kind: CallKind::AllReduce,
            op: CollectiveOp::ALL_REDUCE,
            dtype,
            count: bytes / dtype.bytes(),
            sent: 2 * (ranks - 1) * bytes / ranks,
            named: bytes,
        };
        self.put(among, label, operands, on)
    }

    /// Puts a call on a stream, in its turn. The watch sees it until a wait for the stream ends.
    fn put(
        &self,
        among: Among,
        label: &str,
        operands: Operands,
        on: OnStream,
    ) -> Result<(), Error> {
        let groups = self.on_device.as_ref().expect("groups on the device");
        let end = self.end(among);
        self.counter.add(among, operands.kind, operands.sent);
        let (Some(group), Some(watch)) = (&groups.groups[among as usize], &self.watch) else {
            return Ok(());
        };
        let call = Call {
            kind: operands.kind,
            label,
            bytes: operands.named,
        };
        let mut calls = end.calls.lock().unwrap_or_else(PoisonError::into_inner);
        *calls += 1;
        let id = watch.enter_open(self.rank, &end.name, *calls, &call.to_string());
        groups.open().push(OpenCall {
            stream: on.stream.addr().get(),
            id,
        });
        let made = group.call(&CollectiveCall {
            op: operands.op,
            dtype: operands.dtype,
            count: operands.count,
            root: 0,
            send: on.send.address.as_ptr(),
            recv: on.recv.address.as_ptr(),
            stream: on.stream.as_ptr().cast_const(),
        });
        made.map_err(|error| watch.blame(self.rank, &error))
    }

    /// The host has waited for streams of the device, whose calls are done.
    pub fn device_calls_done(&self, done: DoneCalls) {
        let (Some(groups), Some(watch)) = (&self.on_device, &self.watch) else {
            return;
        };
        let is_done = |call: &OpenCall| match done {
            DoneCalls::All => true,
            DoneCalls::Of(stream) => {
                stream.is_some_and(|stream| stream.addr().get() == call.stream)
            }
        };
        groups.open().retain(|call| {
            let is_done = is_done(call);
            if is_done {
                watch.leave(self.rank, call.id);
            }
            !is_done
        });
    }
}

impl DeviceGroups {
    // A panic while the lock is held leaves the list whole.
    fn open(&self) -> std::sync::MutexGuard<'_, Vec<OpenCall>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use espalier_interface::Result as PluginResult;
    use espalier_system::stop::StopFlag;
    use espalier_system::world::World;

    use super::*;
    use crate::ranks::Watch;

    /// A group whose calls never end.
    struct Endless;

    impl Group for Endless {
        fn call(&self, _: &CollectiveCall) -> PluginResult<()> {
            Ok(())
        }
        fn abort(&self) {}
    }

    /// Rank 0 of two, whose device is in a group with that of rank 1.
    fn first_of_two(watch: &Arc<Watch>) -> Peers {
        let mut peers = Peers::alone();
        let ends = Arc::get_mut(&mut peers.ends).expect("nobody else has them");
        ends.iter_mut().for_each(|end| end.ranks = 2);
        peers.watch = Some(Arc::clone(watch));
        peers.on_device = Some(Arc::new(DeviceGroups {
            groups: [Some(Box::new(Endless)), None, None],
            open: Mutex::default(),
        }));
        peers
    }

    /// Whether rank 1, which is silent, is found lost after rank 0 was given a call on one stream
    /// and has waited for `done`.
    fn is_waited_for(done: impl Fn([NonNull<()>; 2]) -> DoneCalls) -> bool {
        let timeout = Duration::from_millis(400);
        let watch = Watch::start(World::threads(2), timeout, &StopFlag::new());
        let peers = first_of_two(&watch);
        let _acting = [watch.acts(0), watch.acts(1)];
        let mut memory = [0u8; 2];
        let streams = [0, 1].map(|index| NonNull::from(&mut memory[index]).cast());
        let span = DeviceSpan {
            address: NonNull::dangling(),
            bytes: 8,
        };
        let on = OnStream {
            send: span,
            recv: span,
            stream: streams[0],
        };
        let put = peers.all_gather_on(Among::Shards, "unit 0", on);
        put.expect("it is put on a stream");
        peers.device_calls_done(done(streams));
        for _ in 0..100 {
            watch.beat(0);
            if watch.first_lost().is_some() {
                return true;
            }
            sleep(Duration::from_millis(10));
        }
        false
    }

    #[test]
    fn a_call_on_another_stream_than_the_one_waited_for_stays_open() {
        assert!(is_waited_for(|[_, other]| DoneCalls::Of(Some(other))));
        assert!(is_waited_for(|_| DoneCalls::Of(None)));
        assert!(!is_waited_for(|[same, _]| DoneCalls::Of(Some(same))));
        assert!(!is_waited_for(|_| DoneCalls::All));
    }
}
