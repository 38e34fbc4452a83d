//! World and collectives -> the peers of each rank of this process.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use espalier_interface::{Collective, ErrorCode, JoinRequest, PluginError};
use espalier_registry::Chosen;
use espalier_registry::select::Collectives;
use espalier_system::world::World;

use super::both::Both;
use super::counts::Counter;
use super::layout::{Layout, Way, shard_ranks};
use super::route::{Alone, Direct, Route};
use super::{Among, End, Peers, Span, abort};
use crate::Error;
use crate::ranks::{Lost, LostBy, Watch};

/// Joins all ranks of this process with the others, in groups of `shards` ranks (0: all) that share
/// what is cut.
///
/// # Errors
/// `Error::Usage` for groups that do not fit the world. `Error::Plugin` or `Error::Peer` where a
/// collective fails, or ranks do not join within `timeout`.
pub fn join(
    world: &World,
    shards: u32,
    collectives: &Collectives,
    watch: &Arc<Watch>,
    timeout: Duration,
) -> Result<Vec<Peers>, Error> {
    let joining = Joining {
        world: *world,
        shards: shard_ranks(world, shards)?,
        collectives,
        watch,
        timeout_secs: timeout.as_secs().max(1),
    };
    // One thread of a process talks to the others, for all of its ranks.
    let first = world.own_ranks().start;
    let mut across = Vec::new();
    for among in Among::ALL {
        across.push(joining.processes(first, among)?);
    }
    if let Some(processes) = &across[Among::World as usize] {
        joining.layouts_agree(processes)?;
    }
    thread::scope(|scope| {
        let mut across = Some(across);
        let spawn = |rank| {
            let across = across.take().unwrap_or_default();
            let joining = &joining;
            scope.spawn(move || joining.rank(rank, across))
        };
        let running: Vec<_> = world.own_ranks().map(spawn).collect();
        let joined = running.into_iter().map(|one| one.join());
        joined
            .map(|peers| peers.expect("joining does not panic"))
            .collect()
    })
}

struct Joining<'a> {
    world: World,
    shards: u32,
    collectives: &'a Collectives,
    watch: &'a Arc<Watch>,
    timeout_secs: u64,
}

impl Joining<'_> {
    fn layout(&self, rank: u32, among: Among) -> Layout {
        Layout::of(&self.world, self.shards, rank, among)
    }

    /// The processes that `rank` calls with for all ranks of its process.
    fn processes(&self, rank: u32, among: Among) -> Result<Option<Direct>, Error> {
        let layout = self.layout(rank, among);
        let (Way::Processes(members)
        | Way::Both {
            processes: members, ..
        }) = layout.way
        else {
            return Ok(None);
        };
        // Processes that share a group share its name, whichever of their ranks it was made for.
        let group = format!("{among} of processes {members:?}");
        let (own, size) = (self.world.process, self.world.processes);
        let collective = self.collectives.processes.as_ref();
        self.joined(rank, collective, group, members, (own, size))
            .map(Some)
    }

    /// Checks that all processes number their ranks alike, before any call relies on it.
    fn layouts_agree(&self, processes: &Direct) -> Result<(), Error> {
        let world = &self.world;
        let own = [
            world.ranks_per_process(),
            world.processes_per_machine,
            self.shards,
        ];
        let sent: Vec<u8> = own.iter().flat_map(|number| number.to_le_bytes()).collect();
        let mut received = vec![0; sent.len() * world.processes as usize];
        let gathered = processes.all_gather(Span::read_only(&sent), Span::of(&mut received));
        gathered.map_err(|error| self.watch.blame(world.own_ranks().start, &error))?;
        let first = &received[..sent.len()];
        let Some(process) = received.chunks(sent.len()).position(|other| other != first) else {
            return Ok(());
        };
        let numbers = |process: usize| {
            let (numbers, _) = received[process * sent.len()..].as_chunks::<4>();
            [0, 1, 2].map(|at| u32::from_le_bytes(numbers[at]))
        };
        let shown = |process: usize| {
            let [ranks, near, shards] = numbers(process);
            format!(
                "process {process} has {ranks} ranks, {near} processes on its machine, and weights cut in {shards}"
            )
        };
        let rank = (0..process).map(|before| numbers(before)[0]).sum();
        let message = format!("{}; {}", shown(process), shown(0));
        Err(Error::Peer(Lost::of(rank, LostBy::Disagrees(message))))
    }

    /// Joins the groups of a rank on its own thread. The first rank of the process has `across`,
    /// its groups with other processes.
    fn rank(&self, rank: u32, across: Vec<Option<Direct>>) -> Result<Peers, Error> {
        let mut across = across.into_iter();
        let mut end = |among| -> Result<End, Error> {
            let layout = self.layout(rank, among);
            let route = self.route(rank, &layout, across.next().flatten())?;
            Ok(End {
                name: layout.name,
                ranks: layout.ranks.len() as u64,
                route,
                calls: Mutex::new(0),
            })
        };
        let [shards, replicas, world] = Among::ALL;
        let ends = Arc::new([end(shards)?, end(replicas)?, end(world)?]);
        let weak = Arc::downgrade(&ends);
        self.watch.on_abort(move || {
            if let Some(ends) = weak.upgrade() {
                abort(&ends);
            }
        });
        Ok(Peers {
            world: self.world,
            rank,
            shard: (rank % self.shards, self.shards),
            ends,
            on_device: None,
            watch: Some(Arc::clone(self.watch)),
            counter: Counter::default(),
        })
    }

    fn route(
        &self,
        rank: u32,
        layout: &Layout,
        across: Option<Direct>,
    ) -> Result<Box<dyn Route>, Error> {
        let (name, own) = (&layout.name, self.world.ranks_per_process());
        Ok(match &layout.way {
            Way::Alone => Box::new(Alone),
            Way::Threads(members) => Box::new(self.threads(rank, name.clone(), members)?),
            Way::Processes(_) => Box::new(across.expect("the process's only thread has it")),
            Way::Both { threads, processes } => {
                let all: Vec<u32> = (0..own).collect();
                // The threads of a process are of different groups of one kind: by its first word.
                let kind = name.split(' ').next().unwrap_or(name);
                let process = self.threads(rank, format!("{kind} of the process"), &all)?;
                let group = match threads.len() {
                    1 => None,
                    _ => Some(self.threads(rank, format!("{name} in the process"), threads)?),
                };
                let place = processes.iter().position(|&one| one == self.world.process);
                Box::new(Both {
                    process,
                    thread: u64::from(rank % own),
                    threads: u64::from(own),
                    group,
                    groups: u64::from(own) / threads.len() as u64,
                    processes: across,
                    process_index: place.expect("its own process") as u64,
                    num_processes: processes.len() as u64,
                })
            }
        })
    }

    fn threads(&self, rank: u32, group: String, members: &[u32]) -> Result<Direct, Error> {
        let size = self.world.ranks_per_process();
        let collective = self.collectives.threads.as_ref();
        let own = (rank % size, size);
        self.joined(rank, collective, group, members.to_vec(), own)
    }

    fn joined(
        &self,
        rank: u32,
        collective: Option<&Chosen<dyn Collective>>,
        group: String,
        members: Vec<u32>,
        (own, size): (u32, u32),
    ) -> Result<Direct, Error> {
        let collective = collective.expect("selected for this world");
        let member = members.iter().position(|&one| one == own);
        let request = JoinRequest {
            group,
            member: member.expect("a group of its own") as u32,
            members,
            size,
            timeout_secs: self.timeout_secs,
            device: None,
            invitation: Vec::new(),
        };
        let joined = collective.plugin.join(&request);
        joined
            .map(Direct)
            .map_err(|error| self.failed(rank, collective, error))
    }

    fn failed(&self, rank: u32, by: &Chosen<dyn Collective>, error: PluginError) -> Error {
        match error.code {
            ErrorCode::PEER => self.watch.blame(rank, &error),
            _ => by.failed("join", error).into(),
        }
    }
}
