//! `check_collective LIBRARIES CACHE`: the kit of collectives on the collective `nccl` over mock
//! libraries, each member with a device of its own. Writes `passed`, or the checks that failed.
//!
//! The kit's calls are of the host's memory. Here each becomes an upload, a call on a stream and a
//! download.
#![allow(unsafe_code)] // Memory of the kit's calls.

use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::thread::{self, sleep};
use std::time::Duration;

use espalier_backend_cuda::{CudaBackend, Nccl};
use espalier_conformance::{Checked, Fault, ProcessGroup, Subject, Suite, Threads, collective};
use espalier_interface::{
    Backend, Buffer, BufferRange, Collective, CollectiveCall, CollectiveInfo, CollectiveOp,
    Component, DType, Device, Group, Instance, JoinRequest, MemberDevice, Members, MemoryKind,
    Options, Result, Role, Stream,
};

/// Members of the largest group.
const DEVICES: u32 = 5;

/// The stream of all calls.
const STREAM: Stream = Stream(0);

/// The collective `nccl`, for memory of the host's.
struct OnHost {
    nccl: Nccl,
    backend: CudaBackend,
    invitations: Mutex<HashMap<String, Vec<u8>>>,
}

/// A member with its device.
struct Member {
    device: Box<dyn Device>,
    group: Box<dyn Group>,
    index: usize,
    members: usize,
    info: CollectiveInfo,
}

impl Collective for OnHost {
    fn describe(&self) -> Result<CollectiveInfo> {
        Ok(CollectiveInfo {
            members: Members::Threads,
            memory: vec!["host".to_owned()],
            ..self.nccl.describe()?
        })
    }

    fn join(&self, request: &JoinRequest) -> Result<Box<dyn Group>> {
        let device = self.backend.open(request.member % DEVICES)?;
        let mut invitations = self.invitations.lock().expect("no panic with the lock");
        let invited = match invitations.get(&request.group) {
            Some(invited) => invited.clone(),
            None => self.nccl.invite()?,
        };
        invitations.insert(request.group.clone(), invited.clone());
        drop(invitations);
        let group = self.nccl.join(&JoinRequest {
            device: Some(MemberDevice {
                backend: "cuda".to_owned(),
                number: device.native_device().expect("a card has a number"),
            }),
            invitation: invited,
            ..request.clone()
        })?;
        Ok(Box::new(Member {
            device,
            group,
            index: request.member as usize,
            members: request.members.len(),
            info: self.nccl.describe()?,
        }))
    }
}

/// The bytes of a call's memory.
fn bytes<'a>(of: *const u8, len: usize) -> &'a [u8] {
    // SAFETY: the kit's calls are of memory that lives until they return.
    unsafe { std::slice::from_raw_parts(of, len) }
}

impl Member {
    /// The call on a buffer that has `send` at the beginning and `recv` from a byte on, both with
    /// their lengths.
    fn on_device(
        &self,
        call: &CollectiveCall,
        buffer: Buffer,
        [send, recv]: [Range<u64>; 2],
    ) -> Result<()> {
        let range = |of: &Range<u64>| BufferRange {
            buffer,
            offset: of.start,
            bytes: of.end - of.start,
        };
        let (sent, received) = (range(&send), range(&recv));
        self.device
            .upload(bytes(call.send, sent.bytes as usize), sent, STREAM)?;
        let address = |of| {
            let address = self.device.native_address(of);
            address.expect("a card has addresses").as_ptr()
        };
        let stream = self.device.native_stream(STREAM).expect("a stream");
        self.group.call(&CollectiveCall {
            send: address(sent),
            recv: address(received),
            stream: stream.as_ptr(),
            ..*call
        })?;
        let done = self.device.record(STREAM)?;
        while !self.device.query(done)? {
            sleep(Duration::from_micros(100));
        }
        self.device.free_event(done)?;
        let mut made = vec![0; received.bytes as usize];
        self.device.download(received, &mut made, STREAM)?;
        // SAFETY: as in `bytes`; nobody reads it meanwhile.
        unsafe { std::ptr::copy(made.as_ptr(), call.recv, made.len()) };
        Ok(())
    }
}

impl Group for Member {
    fn call(&self, call: &CollectiveCall) -> Result<()> {
        let refused = call
            .check_operands(self.members, &self.info.dtypes)
            .is_err();
        if refused || call.count == 0 {
            let stream = self.device.native_stream(STREAM).expect("a stream");
            let stream = stream.as_ptr().cast_const();
            return self.group.call(&CollectiveCall { stream, ..*call });
        }
        let part = call.dtype.bytes() * call.count;
        let all = part * self.members as u64;
        let [sent, received] = match call.op {
            CollectiveOp::ALL_GATHER => [part, all],
            CollectiveOp::REDUCE_SCATTER => [all, part],
            _ => [part, part],
        };
        // In place as the call is, or apart.
        let own = self.index as u64 * part;
        let gathers = call.op == CollectiveOp::ALL_GATHER;
        let within = call
            .recv
            .wrapping_add(if gathers { own as usize } else { 0 });
        let places = if within.cast_const() == call.send {
            let begin = if gathers { own } else { 0 };
            [begin..begin + sent, 0..received]
        } else {
            let begin = sent.next_multiple_of(64);
            [0..sent, begin..begin + received]
        };
        let total = places[0].end.max(places[1].end);
        let buffer = self.device.alloc(total, MemoryKind::DEVICE)?;
        let made = self.on_device(call, buffer, places);
        self.device
            .synchronize(STREAM)
            .and(made)
            .and_then(|()| self.device.free(buffer))
    }

    fn abort(&self) {
        self.group.abort();
    }
}

const ON_HOST: Component = Component {
    name: "nccl",
    role: Role::COLLECTIVE,
    doc: "the collective `nccl` without a card",
    options: &[],
    capabilities: &[],
    create: |_: &Options, services| {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let [libraries, cache] = &arguments[..] else {
            panic!("expected LIBRARIES CACHE, found {arguments:?}");
        };
        let (libraries, cache) = (Path::new(libraries), Path::new(cache));
        let options = espalier_tests_gpu::options_of(libraries, cache, "own");
        Ok(Instance::Collective(Box::new(OnHost {
            nccl: Nccl::new(&options, services.clone())?,
            backend: CudaBackend::new(&options, services)?,
            invitations: Mutex::default(),
        })))
    },
};

/// Members and elements of sums whose parts do not fit into the memory for them at once: of two
/// others 16 MiB, 8 MiB each.
const LARGE: (u32, usize) = (3, (2 << 20) + 1001);

/// Sums of many elements, by a member.
fn large(group: &dyn Group, member: u32) -> Checked {
    let (members, count) = LARGE;
    let value = |member: u32, index: usize| ((index * 7 + member as usize * 3) % 1021) as f32;
    let total = |index| (0..members).map(|one| value(one, index)).sum::<f32>();
    let all: Vec<f32> = (0..count * members as usize)
        .map(|index| value(member, index))
        .collect();
    let first = member as usize * count;
    for (op, first) in [
        (CollectiveOp::REDUCE_SCATTER, first),
        (CollectiveOp::ALL_REDUCE, 0),
    ] {
        let mut sums = vec![0.0f32; count];
        group.call(&CollectiveCall {
            op,
            dtype: DType::F32,
            count: count as u64,
            root: 0,
            send: all.as_ptr().cast(),
            recv: sums.as_mut_ptr().cast(),
            stream: std::ptr::null(),
        })?;
        if let Some(at) = (0..count).find(|&index| sums[index] != total(first + index)) {
            let found = sums[at];
            return Err(Fault::Failed(format!("{op}: element {at} is {found}")));
        }
    }
    Ok(())
}

/// [`large`] by all members.
fn all_large(subject: &Subject<'_, dyn Collective>) -> Checked {
    let options = Options::default();
    let collective = subject.make(&options, Threads::new(1))?;
    let (members, _) = LARGE;
    let member = |member: u32| -> Checked {
        let group = collective.join(&JoinRequest {
            group: "large".to_owned(),
            members: (0..members).collect(),
            member,
            size: members,
            timeout_secs: 60,
            device: None,
            invitation: Vec::new(),
        })?;
        large(group.as_ref(), member)
    };
    let member = &member;
    thread::scope(|scope| {
        let running: Vec<_> = (0..members)
            .map(|index| scope.spawn(move || member(index)))
            .collect();
        let mut done = running.into_iter().map(|one| one.join());
        done.try_for_each(|one| one.expect("no panic"))
    })
}

fn main() {
    let mut suite = Suite::new(ON_HOST.name);
    let subject = Subject::<dyn Collective>::collective(&ON_HOST);
    collective(&subject, ProcessGroup::ALONE, &mut suite);
    suite.check(
        "sum.large",
        "sums whose parts do not fit into the memory for them at once",
        || all_large(&subject),
    );
    let report = suite.finish();
    let said = if report.passed() {
        "passed".to_owned()
    } else {
        report.to_string()
    };
    let written = std::io::stdout().write_all(said.as_bytes());
    written.expect("the standard output takes a line");
}
