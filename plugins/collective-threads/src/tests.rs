//! Calls of several threads, aborted groups, and members that do not join.

use espalier_interface::{CollectiveCall, CollectiveOp, DType, ErrorCode};

use super::*;

fn request(member: u32, members: u32) -> JoinRequest {
    JoinRequest {
        group: "all".to_owned(),
        members: (0..members).collect(),
        member,
        size: members,
        timeout_secs: 1,
        device: None,
        invitation: Vec::new(),
    }
}

fn call<T>(
    op: CollectiveOp,
    dtype: DType,
    count: usize,
    send: &[T],
    recv: &mut [T],
) -> CollectiveCall {
    CollectiveCall {
        op,
        dtype,
        count: count as u64,
        root: 0,
        send: send.as_ptr().cast(),
        recv: recv.as_mut_ptr().cast(),
        stream: std::ptr::null(),
    }
}

/// The results of `members` threads, in their order.
fn each<R: Send>(members: u32, body: impl Fn(u32, &dyn Group) -> R + Sync) -> Vec<R> {
    let threads = Threads::default();
    std::thread::scope(|scope| {
        let spawn = |member| {
            let (threads, body) = (&threads, &body);
            scope.spawn(move || {
                let group = threads.join(&request(member, members)).expect("all come");
                body(member, group.as_ref())
            })
        };
        let running: Vec<_> = (0..members).map(spawn).collect();
        running
            .into_iter()
            .map(|one| one.join().expect("no panic"))
            .collect()
    })
}

#[test]
fn a_thousand_calls_stay_synchronized() {
    for members in [1u32, 2, 5] {
        let sums = each(members, |member, group| {
            let mut sums = Vec::new();
            for round in 0..1000u32 {
                let mut data = vec![f64::from(round * (member + 1)); 3];
                let one = data.as_mut_ptr();
                let mut both = call(CollectiveOp::ALL_REDUCE, DType::F64, 3, &data, &mut []);
                both.recv = one.cast();
                group.call(&both).expect("all call");
                sums.push(data[2]);
            }
            sums
        });
        let total = f64::from(members * (members + 1) / 2);
        let expected: Vec<f64> = (0..1000).map(|round| f64::from(round) * total).collect();
        assert!(sums.iter().all(|sums| *sums == expected));
    }
}

#[test]
fn a_group_ends_when_a_member_leaves() {
    let ended = each(3, |member, group| {
        if member == 1 {
            return None; // drops its member
        }
        let (send, mut recv) = ([0u8; 4], [0u8; 12]);
        let gather = call(CollectiveOp::ALL_GATHER, DType::U8, 4, &send, &mut recv);
        Some(group.call(&gather).expect_err("a member is gone").code)
    });
    assert_eq!(ended, [Some(ErrorCode::PEER), None, Some(ErrorCode::PEER)]);
}

#[test]
fn missing_members_are_named() {
    let threads = Threads::default();
    let error = threads.join(&request(0, 3)).err().expect("alone");
    assert_eq!(error.code, ErrorCode::PEER);
    assert!(
        error.message.contains("thread 1, 2 did not come"),
        "{error}"
    );
}
