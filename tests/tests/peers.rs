//! Ranks that make collective calls: threads of a process, processes, and threads of several
//! processes. Threads simulate the processes here; the test `mpi` has real ones.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use espalier_config::{Sources, resolve};
use espalier_engine::Error;
use espalier_engine::ranks::{Among, CallKind, Peers, Span, Watch, join};
use espalier_interface::{Collective, DType, Serial, Services};
use espalier_registry::select::Collectives;
use espalier_registry::{Chosen, Registry, SearchPath};
use espalier_system::stop::StopFlag;
use espalier_system::world::World;
use espalier_tests as _;
use serde_json::Map;

static SERVICES: &dyn Services = &Serial;

const TIMEOUT: Duration = Duration::from_secs(20);

fn threads() -> Chosen<dyn Collective> {
    let resolved = resolve(&Sources::default()).expect("defaults");
    let registry = Registry::discover(&SearchPath::of(&resolved));
    let made = registry.create_collective("threads", &Map::new(), SERVICES);
    let (plugin, identity) = made.expect("a shipped plugin");
    Chosen {
        plugin: Arc::from(plugin),
        identity,
        options: Map::new(),
    }
}

/// The result of every rank of `processes` processes of `each` threads, by rank.
fn world<R: Send>(
    (processes, each, shards): (u32, u32, u32),
    act: impl Fn(&Peers) -> R + Sync,
) -> Vec<R> {
    let between = threads();
    let process = |process| {
        let world = World {
            ranks: processes * each,
            processes,
            processes_per_machine: 1,
            process,
        };
        let collectives = Collectives {
            threads: Some(threads()),
            processes: Some(between.clone()),
            devices: None,
        };
        let watch = Watch::start(world, TIMEOUT, &StopFlag::new());
        let peers = join(&world, shards, &collectives, &watch, TIMEOUT).expect("all come");
        thread::scope(|scope| {
            let act = &act;
            let spawn = |peers| scope.spawn(move || act(peers));
            let ranks: Vec<_> = peers.iter().map(spawn).collect();
            let given = ranks.into_iter().map(|rank| rank.join().expect("no panic"));
            given.collect::<Vec<R>>()
        })
    };
    thread::scope(|scope| {
        let process = &process;
        let spawn = |index| scope.spawn(move || process(index));
        let running: Vec<_> = (0..processes).map(spawn).collect();
        let given = running.into_iter().map(|one| one.join().expect("no panic"));
        given.flatten().collect()
    })
}

/// Processes, threads of each, ranks per sharding group.
const WORLDS: [(u32, u32, u32); 19] = [
    (1, 1, 0),
    (1, 2, 0),
    (1, 3, 0),
    (1, 4, 2),
    (1, 6, 3),
    (1, 4, 1),
    (1, 7, 0),
    (2, 1, 0),
    (3, 1, 0),
    (4, 1, 2),
    (4, 1, 1),
    (7, 1, 0),
    (2, 2, 0),
    (2, 2, 2),
    (2, 2, 1),
    (2, 3, 3),
    (3, 2, 0),
    (4, 2, 4),
    (2, 4, 2),
];

/// The value of rank `rank` at `index`: sums of it are exact in every dtype.
fn held(rank: u32, index: usize) -> f32 {
    ((rank as usize * 7 + index * 3) % 5) as f32 - 1.0
}

fn span<T>(values: &mut [T]) -> Span {
    let bytes = size_of_val(values);
    let start = values.as_mut_ptr().cast();
    // SAFETY: plain numbers, of that many bytes.
    #[allow(unsafe_code)]
    Span::of(unsafe { std::slice::from_raw_parts_mut(start, bytes) })
}

/// The ranks of a rank's group, and its place among them.
fn group(peers: &Peers, among: Among) -> (Vec<u32>, usize) {
    let (index, shards) = peers.shard();
    let all = 0..peers.world().ranks;
    let ranks: Vec<u32> = match among {
        Among::World => all.collect(),
        Among::Shards => (peers.rank() - index..peers.rank() - index + shards).collect(),
        Among::Replicas => all.filter(|rank| rank % shards == index).collect(),
    };
    let place = ranks.iter().position(|&rank| rank == peers.rank());
    (ranks, place.expect("it is of its own group"))
}

/// Elements of a part: a number without small factors.
const PART: usize = 1003;

fn gathers(peers: &Peers) {
    for among in [Among::Shards, Among::World] {
        let (ranks, place) = group(peers, among);
        let mine = |rank: u32| (0..PART).map(move |i| (rank as usize * 31 + i) as u8);
        let expected: Vec<u8> = ranks.iter().flat_map(|&rank| mine(rank)).collect();
        let mut send: Vec<u8> = mine(peers.rank()).collect();
        let mut recv = vec![0; expected.len()];
        let (send, whole) = (span(&mut send), span(&mut recv));
        peers
            .all_gather(among, "apart", send, whole)
            .expect("all call");
        assert!(recv == expected, "{among} of rank {}", peers.rank());
        // In place: only the rank's own part is set.
        let mut recv = vec![0; expected.len()];
        let own = place * PART..(place + 1) * PART;
        recv[own.clone()].copy_from_slice(&expected[own.clone()]);
        let (whole, part) = (span(&mut recv), span(&mut recv[own]));
        peers
            .all_gather(among, "in place", part, whole)
            .expect("all call");
        assert!(
            recv == expected,
            "{among} of rank {}, in place",
            peers.rank()
        );
    }
}

fn sums<T: Copy + PartialEq + std::fmt::Debug>(peers: &Peers, dtype: DType, of: impl Fn(f32) -> T) {
    let total = |ranks: &[u32], index: usize| -> T {
        of(ranks.iter().map(|&rank| held(rank, index)).sum())
    };
    let (ranks, place) = group(peers, Among::Shards);
    let mut send: Vec<T> = (0..ranks.len() * PART)
        .map(|i| of(held(peers.rank(), i)))
        .collect();
    let mut recv = vec![of(0.0); PART];
    let (from, to) = (span(&mut send), span(&mut recv));
    let done = peers.reduce_scatter(Among::Shards, "gradients", dtype, from, to);
    done.expect("all call");
    let expected: Vec<T> = (0..PART).map(|i| total(&ranks, place * PART + i)).collect();
    assert_eq!(recv, expected, "{dtype} of rank {}", peers.rank());
    for among in Among::ALL {
        let (ranks, _) = group(peers, among);
        let mut data: Vec<T> = (0..PART).map(|i| of(held(peers.rank(), i))).collect();
        let all = span(&mut data);
        peers
            .all_reduce(among, "sum", dtype, all)
            .expect("all call");
        let expected: Vec<T> = (0..PART).map(|i| total(&ranks, i)).collect();
        assert_eq!(data, expected, "{among}, {dtype} of rank {}", peers.rank());
    }
}

#[test]
fn ranks_gather_and_sum_their_values() {
    for shape in WORLDS {
        world(shape, |peers| {
            gathers(peers);
            sums(peers, DType::F64, f64::from);
            sums(peers, DType::F32, |x| x);
            sums(peers, DType::BF16, half::bf16::from_f32);
            sums(peers, DType::F16, half::f16::from_f32);
            let sent = "a".repeat(peers.rank() as usize * 3);
            let received = peers.exchange("words", sent.as_bytes()).expect("all say");
            let lengths: Vec<usize> = received.iter().map(Vec::len).collect();
            let expected: Vec<usize> = (0..received.len()).map(|rank| rank * 3).collect();
            assert_eq!(
                (lengths, received.len()),
                (expected, peers.world().ranks as usize)
            );
        });
    }
}

/// Numbers whose sum depends on the order.
fn rough(rank: u32, index: usize) -> f32 {
    let bits = (rank * 40_503 + index as u32).wrapping_mul(2_654_435_761);
    (bits >> 8) as f32 / 65_536.0 * if bits & 1 == 0 { 1.0 } else { -1e-3 }
}

#[test]
fn threads_and_processes_sum_in_the_order_of_the_ranks() {
    let summed = |shape: (u32, u32, u32)| {
        world(shape, |peers| {
            let mut data: Vec<f32> = (0..PART).map(|i| rough(peers.rank(), i)).collect();
            let whole = span(&mut data);
            let done = peers.all_reduce(Among::World, "sum", DType::F32, whole);
            done.expect("all call");
            data
        })
    };
    let in_order = |i| (1..7).fold(rough(0, i), |sum, rank| sum + rough(rank, i));
    let expected: Vec<f32> = (0..PART).map(in_order).collect();
    let backwards = |i| {
        (0..6)
            .rev()
            .fold(rough(6, i), |sum, rank| sum + rough(rank, i))
    };
    assert_ne!(expected, (0..PART).map(backwards).collect::<Vec<_>>());
    assert!(summed((1, 7, 0)).iter().all(|sum| *sum == expected));
    assert!(summed((7, 1, 0)).iter().all(|sum| *sum == expected));
    // Another order, but the same one each time and on every rank.
    let first = summed((3, 2, 0));
    assert!(summed((3, 2, 0)) == first && first.iter().all(|sum| *sum == first[0]));
}

#[test]
fn calls_and_bytes_follow_from_the_shapes() {
    for shape @ (processes, each, shards) in [(1, 6, 3), (4, 1, 2), (2, 2, 2), (1, 1, 0)] {
        let ranks = u64::from(processes * each);
        let shards = u64::from(if shards == 0 { ranks as u32 } else { shards });
        let part = PART as u64 * 4;
        world(shape, |peers| {
            let before = peers.counts();
            sums(peers, DType::F32, |x| x);
            peers.exchange("words", b"12345").expect("all say");
            let counts = peers.counts().since(&before);
            let count = |among, kind| {
                let count = counts.of(among, kind);
                (count.calls, count.bytes)
            };
            let scattered = count(Among::Shards, CallKind::ReduceScatter);
            assert_eq!(scattered, (1, (shards - 1) * part));
            for (among, n) in [
                (Among::Shards, shards),
                (Among::Replicas, ranks / shards),
                (Among::World, ranks),
            ] {
                let summed = count(among, CallKind::AllReduce);
                assert_eq!(summed, (1, 2 * (n - 1) * part / n), "{among}");
            }
            let counted = count(Among::World, CallKind::Exchange);
            assert_eq!(counted, (1, (ranks - 1) * (5 + 8)));
            assert_eq!(count(Among::World, CallKind::AllGather), (0, 0));
        });
    }
}

/// The error of a rank's call.
fn refused(done: Result<(), Error>) -> String {
    let error = done.expect_err("a rank is lost");
    assert_eq!(error.exit_code(), 6, "{error}");
    error.to_string()
}

#[test]
fn mismatched_calls_are_detected_and_end_all_ranks() {
    let errors = world((1, 3, 0), |peers| {
        let mut data = vec![1.0f32; if peers.rank() == 1 { 30 } else { 60 }];
        let whole = span(&mut data);
        refused(peers.all_reduce(Among::World, "norm", DType::F32, whole))
    });
    assert!(
        errors.iter().all(|error| error.contains("rank")),
        "{errors:?}"
    );
}

#[test]
fn a_rank_that_aborts_ends_the_calls_of_all() {
    for shape in [(1, 3, 0), (3, 1, 0)] {
        world(shape, |peers| {
            if peers.rank() == 2 {
                thread::sleep(Duration::from_millis(50));
                return peers.abort();
            }
            let mut data = vec![1.0f64; 4];
            let whole = span(&mut data);
            refused(peers.all_reduce(Among::World, "norm", DType::F64, whole));
        });
    }
}
