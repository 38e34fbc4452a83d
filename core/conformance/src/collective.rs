//! The checks of collectives: what members gather, sum and broadcast, the order of additions, and
//! how a group ends.
//!
//! Members that are threads are started here. Members that are processes each run the same checks
//! at the same time: under `mpirun` the kit is one of them.

use std::thread;
use std::time::Duration;

use espalier_interface::{
    Collective, CollectiveCall, CollectiveInfo, CollectiveOp, DType, ErrorCode, Group, JoinRequest,
    Members, PluginError,
};

use crate::checked::{Checked, Fault, calm, described, ensure, refusal};
use crate::{ProcessGroup, Subject, Suite, Threads, declared};

/// Group sizes under test, where members are threads.
const MEMBERS: [u32; 4] = [1, 2, 3, 5];

/// Elements of a part: none, few, and many that are a multiple of no block size.
const COUNTS: [usize; 5] = [0, 1, 3, 1003, 70_001];

/// Runs all checks of a collective.
pub fn collective(
    subject: &Subject<'_, dyn Collective>,
    processes: ProcessGroup,
    suite: &mut Suite<'_>,
) {
    declared::check(&subject.component, suite);
    suite.check(
        "describe",
        "it says what it joins and whose memory it takes, and sums f32",
        || {
            let info = make(subject)?.describe()?;
            let sound = info.dtypes.contains(&DType::F32)
                && !info.memory.is_empty()
                && info.max_bytes > 0
                && !info.description.trim().is_empty();
            ensure(sound, || format!("found {info:?}"))
        },
    );
    for (name, asserts, body) in CHECKS {
        suite.check(name, asserts, || each(subject, processes, name, body));
    }
    suite.check(
        "join.refused",
        "a member that is not of its group is rejected with a message",
        || {
            let collective = make(subject)?;
            host_only(&collective.describe()?)?;
            let wrong = JoinRequest {
                member: processes.size + 3,
                ..request("refused", processes.own, processes.size)
            };
            match collective.join(&wrong) {
                Ok(_) => Err(Fault::Failed("it joined".to_owned())),
                Err(error) => refusal(&error),
            }
        },
    );
}

type OfMember = fn(&Member<'_>) -> Checked;

const CHECKS: [(&str, &str, OfMember); 7] = [
    (
        "gather",
        "an all-gather gives all parts in the order of the members, also in place",
        gather,
    ),
    (
        "broadcast",
        "a broadcast gives all members what its root has",
        broadcast,
    ),
    (
        "sum.order",
        "sums are added in the order of the members, to the bit, of all and of parts, also in place",
        sums,
    ),
    (
        "sum.rounded_once",
        "sums of 16-bit dtypes are rounded once, at their end",
        rounded_once,
    ),
    (
        "call.refused",
        "ops, dtypes and roots that do not exist are rejected with a message, and the group stays usable",
        refused,
    ),
    (
        "call.mismatch",
        "members that make different calls get the error PEER",
        mismatch,
    ),
    (
        "abort",
        "calls that wait for a member that does not come end with PEER when the group is given up, later ones at once",
        abort,
    ),
];

/// A member of a group.
struct Member<'a> {
    group: &'a dyn Group,
    info: &'a CollectiveInfo,
    index: usize,
    members: usize,
}

fn make(subject: &Subject<'_, dyn Collective>) -> Checked<Box<dyn Collective>> {
    Ok(subject.make(&subject.option_sets()[0].options, Threads::new(1))?)
}

fn request(group: &str, member: u32, members: u32) -> JoinRequest {
    JoinRequest {
        group: group.to_owned(),
        members: (0..members).collect(),
        member,
        size: members,
        timeout_secs: 20,
        device: None,
        invitation: Vec::new(),
    }
}

/// Skips a check whose calls are of the host's memory, where the collective takes none.
fn host_only(info: &CollectiveInfo) -> Checked {
    if info.memory.iter().any(|memory| memory == "host") {
        return Ok(());
    }
    let taken = info.memory.join(", ");
    Err(Fault::Skipped(format!(
        "it takes memory of {taken} alone, and the kit has that of the host's"
    )))
}

/// Runs `body` as each member of groups of several sizes, or as this process's member of the
/// processes.
fn each(
    subject: &Subject<'_, dyn Collective>,
    processes: ProcessGroup,
    name: &str,
    body: OfMember,
) -> Checked {
    // It outlives its groups.
    let collective = make(subject)?;
    let info = collective.describe()?;
    host_only(&info)?;
    let member = |index: u32, members: u32| -> Checked {
        let group = collective.join(&request(&format!("{name} of {members}"), index, members))?;
        let done = calm(|| {
            body(&Member {
                group: group.as_ref(),
                info: &info,
                index: index as usize,
                members: members as usize,
            })
        });
        if let Err(Fault::Failed(_)) = done {
            // No other member may be left waiting for it.
            group.abort();
        }
        done.map_err(|fault| fault.at(&format!("member {index} of {members}")))
    };
    if info.members == Members::Processes {
        return member(processes.own, processes.size);
    }
    let member = &member;
    for members in MEMBERS {
        thread::scope(|scope| {
            let spawn = |index| scope.spawn(move || member(index, members));
            let running: Vec<_> = (0..members).map(spawn).collect();
            let done = running.into_iter().map(|one| one.join());
            done.map(|one| one.expect("panics are caught within"))
                .collect::<Vec<Checked>>()
        })
        .into_iter()
        .collect::<Checked>()?;
    }
    Ok(())
}

impl Member<'_> {
    fn call<T>(
        &self,
        (op, dtype): (CollectiveOp, DType),
        count: usize,
        (send, recv): (*const T, *mut T),
    ) -> Result<(), PluginError> {
        self.group.call(&CollectiveCall {
            op,
            dtype,
            count: count as u64,
            root: 0,
            send: send.cast(),
            recv: recv.cast(),
            stream: std::ptr::null(),
        })
    }
}

/// The element at `index` that member `member` sends: f64 whose sums depend on the order.
fn rough(member: usize, index: usize) -> f64 {
    let bits = (member as u64 * 40_503 + index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let value = (bits >> 12) as f64 / (1u64 << 40) as f64;
    if bits & 1 == 0 { value } else { -1e-3 * value }
}

fn gather(member: &Member<'_>) -> Checked {
    let part = |member: usize, count: usize| (0..count).map(move |i| (member * 57 + i) as u8);
    for count in COUNTS {
        let expected: Vec<u8> = (0..member.members)
            .flat_map(|one| part(one, count))
            .collect();
        let own: Vec<u8> = part(member.index, count).collect();
        let what = (CollectiveOp::ALL_GATHER, DType::U8);
        let mut apart = vec![0; expected.len()];
        member.call(what, count, (own.as_ptr(), apart.as_mut_ptr()))?;
        let mut whole = vec![0; expected.len()];
        whole[member.index * count..][..count].copy_from_slice(&own);
        let start = whole.as_mut_ptr();
        let place = start.wrapping_add(member.index * count);
        member.call(what, count, (place.cast_const(), start))?;
        ensure(apart == expected, || {
            format!("{count} bytes each, apart: other bytes")
        })?;
        ensure(whole == expected, || {
            format!("{count} bytes each, in place: other bytes")
        })?;
    }
    Ok(())
}

fn broadcast(member: &Member<'_>) -> Checked {
    for count in COUNTS {
        let send: Vec<u8> = (0..count).map(|i| (member.index * 91 + i) as u8).collect();
        let mut recv = vec![0xEE; count];
        let what = (CollectiveOp::BROADCAST, DType::U8);
        member.call(what, count, (send.as_ptr(), recv.as_mut_ptr()))?;
        let expected = (0..count).map(|i| i as u8);
        ensure(recv.iter().copied().eq(expected), || {
            format!("{count} bytes: not those of the root")
        })?;
    }
    Ok(())
}

fn sums(member: &Member<'_>) -> Checked {
    sum_as(member, DType::F32, |x| x as f32)?;
    if member.info.dtypes.contains(&DType::F64) {
        sum_as(member, DType::F64, |x| x)
    } else {
        Ok(())
    }
}

fn sum_as<T>(member: &Member<'_>, dtype: DType, of: impl Fn(f64) -> T) -> Checked
where
    T: Copy + PartialEq + std::ops::Add<Output = T>,
{
    let held = |one: usize, index: usize| of(rough(one, index));
    let total = |index: usize| {
        let rest = (1..member.members).map(|one| held(one, index));
        rest.fold(held(0, index), |sum, value| sum + value)
    };
    for count in COUNTS {
        let differs = |op: &str| format!("{op} of {count} {dtype}: other bits than in their order");
        let all: Vec<T> = (0..count * member.members)
            .map(|index| held(member.index, index))
            .collect();
        let mut out = vec![of(0.0); count];
        let scatter = (CollectiveOp::REDUCE_SCATTER, dtype);
        member.call(scatter, count, (all.as_ptr(), out.as_mut_ptr()))?;
        let first = member.index * count;
        ensure((0..count).all(|i| out[i] == total(first + i)), || {
            differs("reduce-scatter")
        })?;

        let reduce = (CollectiveOp::ALL_REDUCE, dtype);
        let mut out = vec![of(0.0); count];
        member.call(reduce, count, (all.as_ptr(), out.as_mut_ptr()))?;
        ensure((0..count).all(|i| out[i] == total(i)), || {
            differs("all-reduce")
        })?;
        let mut place = all[..count].to_vec();
        let start = place.as_mut_ptr();
        member.call(reduce, count, (start.cast_const(), start))?;
        ensure(place == out, || differs("all-reduce in place"))?;
    }
    Ok(())
}

/// 16-bit dtypes with the bits of a large number, the bits of 1, and the expected sums. These are
/// the large number plus 0, 1, 2 ... ones, each sum rounded to nearest even.
const ROUNDED: [(DType, u16, u16, [u16; 3]); 2] = [
    (DType::BF16, 0x4380, 0x3F80, [0x4380, 0x4380, 0x4381]), // 256, 1; 257 is between 256 and 258
    (DType::F16, 0x6800, 0x3C00, [0x6800, 0x6800, 0x6801]), // 2048, 1; 2049 is between 2048 and 2050
];

fn rounded_once(member: &Member<'_>) -> Checked {
    for (dtype, large, one, sums) in ROUNDED {
        if !member.info.dtypes.contains(&dtype) {
            continue;
        }
        let own = match member.index {
            0 => large,
            1 | 2 => one,
            _ => 0,
        };
        let mut data = [own; 33];
        let start = data.as_mut_ptr();
        let what = (CollectiveOp::ALL_REDUCE, dtype);
        member.call(what, 33, (start.cast_const(), start))?;
        let expected = sums[member.members.min(3) - 1];
        ensure(data == [expected; 33], || {
            format!(
                "{dtype}: expected bits {expected:#06x}, found {:#06x}",
                data[0]
            )
        })?;
    }
    Ok(())
}

fn refused(member: &Member<'_>) -> Checked {
    let mut data = [1.0f32; 4];
    let start = data.as_mut_ptr();
    let both = (start.cast_const(), start);
    for what in [
        (CollectiveOp(77), DType::F32),
        (CollectiveOp::ALL_REDUCE, DType::COMPUTE),
        (CollectiveOp::ALL_REDUCE, DType::I8),
    ] {
        match member.call(what, 4, both) {
            Ok(()) => return Err(format!("{} of {} was done", what.0, what.1).into()),
            Err(error) => refusal(&error)?,
        }
    }
    member.call((CollectiveOp::ALL_REDUCE, DType::F32), 4, both)?;
    ensure(data == [member.members as f32; 4], || {
        format!("found {data:?} afterwards")
    })
}

fn mismatch(member: &Member<'_>) -> Checked {
    threads_only(member)?;
    if member.members == 1 {
        return Ok(());
    }
    let mut data = [1.0f32; 4];
    let start = data.as_mut_ptr();
    let count = if member.index == 1 { 2 } else { 4 };
    let what = (CollectiveOp::ALL_REDUCE, DType::F32);
    peer(member.call(what, count, (start.cast_const(), start)))
}

/// Skips a check that destroys the group, where its members cannot be started again.
fn threads_only(member: &Member<'_>) -> Checked {
    match member.info.members {
        Members::Threads => Ok(()),
        Members::Processes => Err(Fault::Skipped(
            "processes cannot finish after their group has ended".to_owned(),
        )),
    }
}

fn abort(member: &Member<'_>) -> Checked {
    threads_only(member)?;
    if member.members == 1 || member.index == 0 {
        // The member that does not make the call.
        thread::sleep(Duration::from_millis(150));
        return Ok(());
    }
    let mut data = [1.0f32; 4];
    let start = data.as_mut_ptr();
    let both = (start.cast_const(), start);
    let what = (CollectiveOp::ALL_REDUCE, DType::F32);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(50));
            member.group.abort();
        });
        peer(member.call(what, 4, both))
    })?;
    peer(member.call(what, 4, both))
}

/// Fails unless a call ended with `PEER` and a message.
fn peer(done: Result<(), PluginError>) -> Checked {
    match done {
        Err(error) if error.code == ErrorCode::PEER => refusal(&error),
        Err(error) => Err(format!("expected code PEER, found {}", described(&error)).into()),
        Ok(()) => Err("the call was done".to_owned().into()),
    }
}
