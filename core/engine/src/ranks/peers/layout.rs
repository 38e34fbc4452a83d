//! World and shards -> the ranks that a rank calls with, and the route.

use espalier_system::failure::UsageError;
use espalier_system::world::World;

use super::Among;
use crate::Error;

/// A group as one of its ranks sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// The same for all of its ranks.
    pub name: String,
    /// Its ranks, in order.
    pub ranks: Vec<u32>,
    /// This rank's place in `ranks`.
    pub index: u32,
    /// Its route.
    pub way: Way,
}

/// How the ranks of a group reach each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// There is one.
    Alone,
    /// They are threads of one process: their numbers in it.
    Threads(Vec<u32>),
    /// They are processes: their numbers.
    Processes(Vec<u32>),
    /// They are `threads` of each of `processes`. All threads of a process call together, each in a
    /// group of its own kind, and one of them calls for all.
    Both {
        /// Numbers of the threads in the process.
        threads: Vec<u32>,
        /// Numbers of the processes.
        processes: Vec<u32>,
    },
}

/// Checks that `shard_ranks` (0: all) cut the world.
///
/// # Errors
/// `Error::Usage` where they do not, or where groups would cut across processes.
pub(super) fn shard_ranks(world: &World, shard_ranks: u32) -> Result<u32, Error> {
    let shards = match shard_ranks {
        0 => world.ranks,
        some => some,
    };
    let refuse = |message: String, next_step: &str| {
        Err(Error::Usage(UsageError {
            message,
            next_step: next_step.to_owned(),
        }))
    };
    if !world.ranks.is_multiple_of(shards) {
        return refuse(
            format!(
                "groups of {shards} ranks that share what is cut, of {} ranks in all",
                world.ranks
            ),
            "choose a number of ranks that is a multiple of the group's",
        );
    }
    let own = world.ranks_per_process();
    if world.processes > 1 && !shards.is_multiple_of(own) && !own.is_multiple_of(shards) {
        return refuse(
            format!(
                "groups of {shards} ranks would cut across processes of {own} ranks each: \
                 expected a multiple or a divisor"
            ),
            "choose groups of whole processes, or of equal parts of one; or one rank a process",
        );
    }
    Ok(shards)
}

impl Layout {
    /// The group of `rank` among these, where `shards` ranks share cut units.
    pub fn of(world: &World, shards: u32, rank: u32, among: Among) -> Layout {
        let all = 0..world.ranks;
        let (name, ranks): (String, Vec<u32>) = match among {
            Among::World => (among.to_string(), all.collect()),
            Among::Shards => {
                let first = rank - rank % shards;
                let number = rank / shards;
                (
                    format!("{among} {number}"),
                    (first..first + shards).collect(),
                )
            }
            Among::Replicas => {
                let number = rank % shards;
                let alike = all.filter(|other| other % shards == number);
                (format!("{among} {number}"), alike.collect())
            }
        };
        let index = ranks.iter().position(|&other| other == rank);
        Layout {
            name,
            index: index.expect("a rank is of its own group") as u32,
            way: Way::of(world, &ranks),
            ranks,
        }
    }
}

impl Way {
    fn of(world: &World, ranks: &[u32]) -> Way {
        let own = world.ranks_per_process();
        let mut threads: Vec<u32> = ranks.iter().map(|rank| rank % own).collect();
        threads.sort_unstable();
        threads.dedup();
        let mut processes: Vec<u32> = ranks.iter().map(|rank| rank / own).collect();
        processes.dedup();
        match (ranks.len(), processes.len()) {
            (1, _) => Way::Alone,
            (_, 1) => Way::Threads(threads),
            _ if own == 1 => Way::Processes(processes),
            _ => Way::Both { threads, processes },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(processes: u32, each: u32) -> World {
        World {
            ranks: processes * each,
            processes,
            processes_per_machine: 1,
            process: 0,
        }
    }

    #[test]
    fn ranks_that_share_stand_side_by_side() {
        let of = |world, shards, rank, among| Layout::of(&world, shards, rank, among);
        let threads = World::threads(6);
        let shards = of(threads, 3, 4, Among::Shards);
        assert_eq!((shards.ranks, shards.index), (vec![3, 4, 5], 1));
        assert_eq!(shards.way, Way::Threads(vec![3, 4, 5]));
        let replicas = of(threads, 3, 4, Among::Replicas);
        assert_eq!(
            (replicas.name.as_str(), replicas.ranks),
            ("replicas 1", vec![1, 4])
        );
        // Four processes of two: shards over two of them, replicas over the other two.
        let replicas = of(world(4, 2), 4, 5, Among::Replicas);
        assert_eq!(replicas.ranks, [1, 5]);
        let (threads, processes) = (vec![1], vec![0, 2]);
        assert_eq!(replicas.way, Way::Both { threads, processes });
        let alone = of(world(4, 1), 4, 2, Among::Replicas);
        assert_eq!(alone.way, Way::Alone);
        let processes = of(world(4, 1), 2, 2, Among::Shards).way;
        assert_eq!(processes, Way::Processes(vec![2, 3]));
    }

    #[test]
    fn groups_that_cut_across_processes_are_refused() {
        assert_eq!(shard_ranks(&world(2, 4), 0).expect("all"), 8);
        assert_eq!(shard_ranks(&world(2, 4), 2).expect("halves"), 2);
        let error = shard_ranks(&world(3, 4), 6).expect_err("one and a half");
        assert!(
            error.to_string().contains("cut across processes"),
            "{error}"
        );
        let error = shard_ranks(&World::threads(5), 2).expect_err("5 / 2");
        assert!(error.to_string().contains("of 5 ranks in all"), "{error}");
    }
}
