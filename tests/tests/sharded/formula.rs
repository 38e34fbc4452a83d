//! Shapes of a model -> the calls and bytes of every collective in a step, without asking plan or
//! schedule.

use espalier_engine::ranks::{Among, CallKind, Count, Counts};

use super::{Strategy, Variant};

/// Bytes of an element in the reference mode.
const F64: u64 = 8;

/// A unit by its shapes.
pub struct Unit {
    /// Elements of each frozen param.
    pub frozen: Vec<u64>,
    /// Elements of each trainable param.
    pub trainable: Vec<u64>,
    /// Numbers of the passes that read it: all forward, then all backward.
    pub read_in: Vec<u64>,
}

impl Unit {
    /// Elements of the trainable run: each param is rounded up to 64.
    fn elements(&self) -> u64 {
        let rounded = self
            .trainable
            .iter()
            .map(|count| count.next_multiple_of(64));
        rounded.sum()
    }

    /// Bytes of the frozen run: each param is rounded up to 64 bytes.
    fn frozen_bytes(&self) -> u64 {
        let rounded = self
            .frozen
            .iter()
            .map(|count| (count * F64).next_multiple_of(64));
        rounded.sum()
    }

    /// Copies or gathers of the unit in a step. Reads at most `prefetch` passes apart share one.
    fn fetches(&self, variant: &Variant, rounds: u64) -> u64 {
        if variant.strategy == Strategy::ShardGradOp {
            return 1;
        }
        let apart = |pair: &&[u64]| pair[1] - pair[0] > u64::from(variant.prefetch) + 1;
        rounds * (1 + self.read_in.windows(2).filter(apart).count() as u64)
    }
}

/// One of `ranks` equal parts, rounded up to a multiple of 64.
fn part(whole: u64, ranks: u64) -> u64 {
    whole.div_ceil(ranks).next_multiple_of(64)
}

/// The calls and sent bytes of a rank in the passes of a step.
pub fn expected(units: &[Unit], variant: &Variant, rounds: u64) -> Vec<(Among, CallKind, Count)> {
    let world = u64::from(variant.world);
    let sharing = match variant.strategy {
        Strategy::Single | Strategy::Ddp => 1,
        Strategy::FullShard | Strategy::ShardGradOp => world,
        Strategy::Hybrid(ranks) => u64::from(ranks),
    };
    let groups = world / sharing;
    // A rank that shares with no other still takes its part of gradients that go to the host.
    let cut = sharing > 1 || variant.offload == "params+optimizer";
    let [mut gathered, mut scattered, mut summed] = [Count::default(); 3];
    for unit in units {
        let (elements, frozen) = (unit.elements(), unit.frozen_bytes());
        let times = unit.fetches(variant, rounds);
        if sharing > 1 && elements > 0 {
            add(
                &mut gathered,
                times,
                (sharing - 1) * part(elements, sharing) * F64,
            );
        }
        if sharing > 1 && frozen > 0 && variant.gather == "shards" {
            add(&mut gathered, times, (sharing - 1) * part(frozen, sharing));
        }
        if elements > 0 {
            let own = part(elements, sharing) * F64;
            if cut {
                add(&mut scattered, 1, (sharing - 1) * own);
            }
            if groups > 1 {
                add(&mut summed, 1, 2 * (groups - 1) * own / groups);
            }
        }
    }
    let whole = if !cut { Among::World } else { Among::Replicas };
    vec![
        (Among::Shards, CallKind::AllGather, gathered),
        (Among::Shards, CallKind::ReduceScatter, scattered),
        (whole, CallKind::AllReduce, summed),
    ]
}

fn add(count: &mut Count, calls: u64, bytes: u64) {
    count.calls += calls;
    count.bytes += calls * bytes;
}

/// Bytes of all counted calls, and of the expected ones.
pub fn bytes(found: &Counts, expected: &[(Among, CallKind, Count)]) -> [u64; 2] {
    let expected = expected.iter().map(|(_, _, count)| count.bytes).sum();
    [found.bytes(), expected]
}
