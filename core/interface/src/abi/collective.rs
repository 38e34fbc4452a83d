//! The collective's table: joining groups and making their calls, besides the methods of every
//! component.

use abi_stable::StableAbi;
use abi_stable::std_types::RSlice;

use super::Opaque;
use super::call_site::CallSite;
use super::component::{InstanceHandle, instance};
use super::reply::{Reply, from_bytes, guard, plain, to_bytes};
use crate::declaration::Instance;
use crate::role::{Collective, CollectiveCall, CollectiveInfo, CollectiveOp, Group, JoinRequest};
use crate::{DType, ErrorCode, PluginError, Result};

/// Version of [`CollectiveTable`].
pub const COLLECTIVE_VERSION: u32 = 1;

/// A [`CollectiveCall`] in the form that crosses the boundary.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub struct GroupCall {
    op: u32,
    dtype: u32,
    count: u64,
    root: u32,
    send: Opaque,
    recv: Opaque,
    stream: Opaque,
}

/// The functions of a collective besides its methods. The first argument is a group, except for
/// `join`, where it is the collective.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub struct CollectiveTable {
    /// [`Collective::join`]; the request is JSON.
    pub join: extern "C" fn(Opaque, RSlice<'_, u8>) -> Reply<Opaque>,
    /// Leaves a group that was joined.
    pub leave: extern "C" fn(Opaque),
    /// [`Group::call`].
    pub call: extern "C" fn(Opaque, GroupCall) -> Reply<()>,
    /// [`Group::abort`].
    pub abort: extern "C" fn(Opaque),
}

pub(super) static COLLECTIVE_TABLE: CollectiveTable = CollectiveTable {
    join,
    leave,
    call,
    abort,
};

impl From<&CollectiveCall> for GroupCall {
    fn from(call: &CollectiveCall) -> Self {
        GroupCall {
            op: call.op.0,
            dtype: call.dtype.0,
            count: call.count,
            root: call.root,
            send: call.send.cast(),
            recv: call.recv.cast_const().cast(),
            stream: call.stream.cast(),
        }
    }
}

impl From<GroupCall> for CollectiveCall {
    fn from(call: GroupCall) -> Self {
        CollectiveCall {
            op: CollectiveOp(call.op),
            dtype: DType(call.dtype),
            count: call.count,
            root: call.root,
            send: call.send.cast(),
            recv: call.recv.cast_mut().cast(),
            stream: call.stream.cast(),
        }
    }
}

type JoinedGroup = Box<dyn Group>;

extern "C" fn join(handle: Opaque, request: RSlice<'_, u8>) -> Reply<Opaque> {
    guard(|| {
        let Instance::Collective(collective) = instance(handle) else {
            return Err(PluginError::unsupported(
                "this component is not a collective",
            ));
        };
        let request: JoinRequest = from_bytes(request.as_slice())?;
        let group: JoinedGroup = collective.join(&request)?;
        Ok(Box::into_raw(Box::new(group)).cast_const().cast())
    })
}

extern "C" fn leave(group: Opaque) {
    let _ = guard(|| {
        // SAFETY: the host passes each pointer that `join` made exactly once.
        drop(unsafe { Box::from_raw(group.cast_mut().cast::<JoinedGroup>()) });
        Ok(())
    });
}

fn group<'a>(handle: Opaque) -> &'a dyn Group {
    // SAFETY: `join` made it as a `Box<JoinedGroup>`, and the host keeps it until `leave`.
    unsafe { (*handle.cast::<JoinedGroup>()).as_ref() }
}

extern "C" fn call(handle: Opaque, call: GroupCall) -> Reply<()> {
    guard(|| group(handle).call(&call.into()))
}

extern "C" fn abort(handle: Opaque) {
    let _ = guard(|| {
        group(handle).abort();
        Ok(())
    });
}

/// A collective on the plugin's side of the boundary.
pub struct CollectiveProxy {
    handle: InstanceHandle,
    table: CollectiveTable,
}

impl CollectiveProxy {
    /// A collective made of an instance and its table.
    pub fn new(handle: InstanceHandle, table: CollectiveTable) -> Self {
        CollectiveProxy { handle, table }
    }
}

impl Collective for CollectiveProxy {
    fn describe(&self) -> Result<CollectiveInfo> {
        self.handle.call("describe", &())
    }

    fn invite(&self) -> Result<Vec<u8>> {
        self.handle.call("invite", &())
    }

    fn device_bytes(&self) -> Result<u64> {
        match self.handle.call("device_bytes", &()) {
            // Built for an interface before 0.10.
            Err(error) if error.code == ErrorCode::UNSUPPORTED => Ok(0),
            answer => answer,
        }
    }

    fn join(&self, request: &JoinRequest) -> Result<Box<dyn Group>> {
        let request = to_bytes(request)?;
        let _inside = self.handle.site.enter("join");
        let raw = plain((self.table.join)(self.handle.raw, request.as_rslice()))?;
        Ok(Box::new(GroupProxy {
            table: self.table,
            raw,
            site: self.handle.site,
        }))
    }
}

/// A group on the plugin's side of the boundary. Its collective must outlive it: the registry keeps
/// instances for the whole run.
struct GroupProxy {
    table: CollectiveTable,
    raw: Opaque,
    site: &'static CallSite,
}

// SAFETY: `Group` is Send and Sync.
unsafe impl Send for GroupProxy {}
// SAFETY: as above.
unsafe impl Sync for GroupProxy {}

impl Drop for GroupProxy {
    fn drop(&mut self) {
        let _inside = self.site.enter("leave");
        (self.table.leave)(self.raw);
    }
}

impl Group for GroupProxy {
    fn call(&self, call: &CollectiveCall) -> Result<()> {
        let _inside = self.site.enter("call");
        plain((self.table.call)(self.raw, call.into()))
    }

    fn abort(&self) {
        let _inside = self.site.enter("abort");
        (self.table.abort)(self.raw);
    }
}
