//! Several watches in one process, over the loopback device, each as the watch of a process of its
//! own.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Barrier;
use std::sync::atomic::AtomicU32;

use espalier_interface::ErrorCode;

use super::*;
use crate::ranks::CallPosition;

fn threads(ranks: u32, timeout_ms: u64) -> Arc<Watch> {
    let timeout = Duration::from_millis(timeout_ms);
    Watch::start(World::threads(ranks), timeout, &StopFlag::new())
}

/// A watch for each of `processes` processes of two ranks, which have met.
fn processes(processes: u32, timeout_ms: u64) -> Vec<Arc<Watch>> {
    let sent = Mutex::new(vec![Vec::new(); processes as usize]);
    let all_said = Barrier::new(processes as usize);
    let meet = |process: u32| {
        let world = World {
            ranks: 2 * processes,
            processes,
            processes_per_machine: processes,
            process,
        };
        let watch = Watch::start(world, Duration::from_millis(timeout_ms), &StopFlag::new());
        let met = watch.meet(|own| {
            sent.lock().expect("whole")[process as usize] = own.to_vec();
            all_said.wait();
            Ok(sent.lock().expect("whole").clone())
        });
        met.expect("they reach each other");
        watch
    };
    thread_each(processes, meet)
}

fn thread_each<T: Send>(count: u32, act: impl Fn(u32) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let act = &act;
        let running: Vec<_> = (0..count)
            .map(|index| scope.spawn(move || act(index)))
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("it returns"))
            .collect()
    })
}

fn await_loss(watch: &Watch) -> Lost {
    let begun = Instant::now();
    loop {
        match watch.first_lost() {
            Some(Error::Peer(lost)) => return lost,
            _ => assert!(begun.elapsed().as_secs() < 10, "no rank was found lost"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_rank_that_fails_is_told_to_all_once() {
    let watch = threads(2, 60_000);
    let aborted = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&aborted);
    watch.on_abort(move || _ = count.fetch_add(1, Ordering::SeqCst));
    watch.step(1, 4);
    drop(watch.enter(1, "shards", 9, "all_gather `unit 2`"));
    watch.failed(1, "it panicked");
    watch.failed(0, "a rank was lost");
    let error = watch.first_lost().expect("told");
    assert_eq!(error.exit_code(), 6);
    assert_eq!(
        error.to_string(),
        "rank 1, step 4, after call 9 of shards, all_gather `unit 2`: it failed: it panicked"
    );
    assert_eq!(aborted.load(Ordering::SeqCst), 1);
    let count = Arc::clone(&aborted);
    watch.on_abort(move || _ = count.fetch_add(1, Ordering::SeqCst));
    assert_eq!(
        aborted.load(Ordering::SeqCst),
        2,
        "a late caller gets the loss at once"
    );
}

#[test]
fn a_hanging_thread_is_found_while_others_wait_and_a_busy_one_is_not() {
    let watch = threads(3, 400);
    let _acting = [0, 1, 2].map(|rank| watch.acts(rank));
    let _waits = watch.enter(0, "world", 1, "all_reduce `norm`");
    let _waits_too = watch.enter(2, "world", 1, "all_reduce `norm`");
    let busy = watch.busy(1, "fsync");
    std::thread::sleep(Duration::from_millis(900));
    assert!(watch.first_lost().is_none());
    drop(busy);
    let lost = await_loss(&watch);
    assert_eq!(lost.rank, 1);
    assert_eq!(
        lost.waiting,
        Some((0, "call 1 of world, all_reduce `norm`".into()))
    );
    let begun = Instant::now();
    let blamed = watch.blame(0, &PluginError::new(ErrorCode::PEER, "aborted"));
    assert!(matches!(blamed, Error::Peer(lost) if lost.rank == 1));
    assert!(begun.elapsed() < Duration::from_millis(500));
}

#[test]
fn a_process_that_is_gone_is_named_by_all_others_even_the_first() {
    for gone in [0, 2] {
        let watches = processes(3, 60_000);
        watches[gone].step(2 * gone as u32, 5);
        drop(watches[gone].enter(2 * gone as u32, "world", 7, "all_gather `unit 1`"));
        // The others hear of that before its connections close.
        std::thread::sleep(Duration::from_millis(600));
        let begun = Instant::now();
        watches[gone].shared.links().clear();
        for (process, watch) in watches
            .iter()
            .enumerate()
            .filter(|(process, _)| *process != gone)
        {
            let lost = await_loss(watch);
            assert_eq!(
                (lost.rank, lost.ranks, lost.step),
                (2 * gone as u32, 2, 5),
                "{process}"
            );
            assert_eq!(
                lost.process.as_ref().map(|(process, _)| *process),
                Some(gone as u32)
            );
            assert_eq!(
                lost.place,
                CallPosition::After("call 7 of world, all_gather `unit 1`".into())
            );
            assert_eq!(lost.cause, LostBy::Closed);
        }
        assert!(begun.elapsed() < Duration::from_secs(2));
    }
}

#[test]
fn a_stopped_process_is_silent_and_learns_it_when_it_wakes() {
    let watches = processes(2, 1500);
    let stopped = watches[1].shared.links();
    let begun = Instant::now();
    let lost = await_loss(&watches[0]);
    assert!(begun.elapsed() >= Duration::from_millis(1000), "{lost}");
    assert_eq!((lost.rank, lost.cause), (2, LostBy::Silent(1)));
    drop(stopped);
    assert_eq!(await_loss(&watches[1]).rank, 2);
}

#[test]
fn failures_hangs_and_other_calls_are_told_across_processes() {
    let watches = processes(3, 60_000);
    watches[1].failed(3, "not enough memory");
    for watch in &watches {
        let lost = await_loss(watch);
        assert_eq!((lost.rank, lost.ranks), (3, 1));
        assert_eq!(lost.cause, LostBy::Reported("not enough memory".into()));
    }

    let watches = processes(2, 1500);
    let _acting: Vec<_> = (0..4)
        .map(|rank| watches[rank as usize / 2].acts(rank))
        .collect();
    let waits: Vec<_> = [0, 1, 3]
        .map(|rank| watches[rank as usize / 2].enter(rank, "world", 1, "all_reduce `norm`"))
        .into();
    for watch in &watches {
        let lost = await_loss(watch);
        assert_eq!(lost.rank, 2);
        assert!(matches!(lost.cause, LostBy::Hangs(_)), "{lost}");
        assert_eq!(lost.process.as_ref().map(|(process, _)| *process), Some(1));
    }
    drop(waits);

    let watches = processes(2, 60_000);
    let _calls: Vec<_> = (0..4)
        .map(|rank| {
            let what = if rank == 3 {
                "reduce_scatter `unit 1`"
            } else {
                "all_gather `unit 2`"
            };
            watches[rank as usize / 2].enter(rank, "world", 1, what)
        })
        .collect();
    for watch in &watches {
        let lost = await_loss(watch);
        assert_eq!(lost.rank, 3, "{lost}");
        assert!(matches!(lost.cause, LostBy::OtherCall { .. }), "{lost}");
    }
}

#[test]
fn a_process_that_ends_its_run_is_lost_only_to_those_that_wait_for_it() {
    let mut watches = processes(3, 1500);
    drop(watches.remove(1));
    std::thread::sleep(Duration::from_millis(2000));
    assert!(watches.iter().all(|watch| watch.first_lost().is_none()));
    let _waits = watches[1].enter(4, "world", 3, "all_gather `end`");
    // Its neighbour lives on, so that it is not the one that is waited for.
    let alive = Instant::now();
    while watches[1].first_lost().is_none() && alive.elapsed().as_secs() < 10 {
        for (watch, rank) in watches.iter().zip([0, 4]) {
            watch.beat(rank);
            watch.beat(rank + 1);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let lost = await_loss(&watches[1]);
    assert_eq!((lost.rank, lost.cause), (2, LostBy::Ended));
}

#[test]
fn strangers_are_sent_away() {
    let posts = [0, 1].map(|_| Post::open().expect("a port"));
    let all = posts.each_ref().map(|post| post.introduction.clone());
    let world = |process| World {
        processes: 2,
        processes_per_machine: 2,
        process,
        ..World::threads(2)
    };
    let port = posts[0].port();
    let mut strangers: Vec<TcpStream> = Vec::new();
    for words in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\0\0\0\0", b""] {
        let mut stranger = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        stranger.write_all(words).expect("sent");
        strangers.push(stranger);
    }
    let links = thread_each(2, |process| {
        posts[process as usize].meet(world(process), &all, 0)
    });
    for (process, links) in links.into_iter().enumerate() {
        let links = links.expect("they meet for all that");
        assert_eq!(links.len(), 1);
        assert_eq!(links[0].process, 1 - process as u32);
    }
}
