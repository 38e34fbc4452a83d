//! All of a device that changes, and how its tasks are put, chosen and run.

use std::collections::HashMap;

use espalier_interface::{BufferRange, Device, ErrorCode, Kernel, PluginError, Result};

use crate::counts::{Counts, Live};
use crate::follower::Follower;
use crate::memory::{Buffers, Freed};
use crate::order::{Moment, Scheduler};
use crate::queues::{Point, Queues};
use crate::races::{Access, Call, Does, Race};
use crate::task::{KnownKernel, Task};

/// The state behind a device's lock.
pub struct State {
    /// Streams and events.
    pub queues: Queues,
    /// Buffers.
    pub buffers: Buffers,
    /// The prepared kernels.
    pub kernels: HashMap<Kernel, KnownKernel>,
    /// Calls so far.
    pub counts: Counts,
    /// Looks for tasks that nothing orders.
    pub follower: Follower,
    scheduler: Scheduler,
    /// The first failure that the host has not been told.
    failure: Option<PluginError>,
}

impl State {
    /// A device without buffers and kernels.
    pub fn new(scheduler: Scheduler, follower: Follower) -> Self {
        State {
            queues: Queues::new(),
            buffers: Buffers::default(),
            kernels: HashMap::new(),
            counts: Counts::default(),
            follower,
            scheduler,
            failure: None,
        }
    }

    /// Puts a task, whose ranges were checked, on a stream. Then what the order lets run runs.
    pub fn put(&mut self, stream: usize, task: Task, cpu: &dyn Device) {
        if !matches!(task, Task::Wait(_) | Task::Pause(_)) {
            self.follow(Call::Put {
                stream,
                what: task.what(),
                accesses: task.accesses(),
            });
        }
        self.buffers.enter(&task.buffers());
        self.queues.put(stream, task);
        let mut left = self.scheduler.limit(Moment::Put).unwrap_or(u64::MAX);
        while left > 0 && self.step(Moment::Put, cpu) {
            left -= 1;
        }
    }

    /// A download begins: a task of `stream` that reads `range`.
    pub fn downloads(&mut self, stream: usize, range: BufferRange) {
        let does = Does::Reads;
        self.follow(Call::Put {
            stream,
            what: "download".into(),
            accesses: vec![Access { range, does }],
        });
    }

    /// Runs one task towards `point`, or finds its stream paused; false where it is reached.
    pub fn approach(&mut self, point: Point, cpu: &dyn Device) -> bool {
        self.step(Moment::Waiting(point), cpu)
    }

    fn step(&mut self, moment: Moment, cpu: &dyn Device) -> bool {
        let Some(stream) = self.scheduler.next(&self.queues, moment) else {
            return false;
        };
        if self.queues.pauses(stream) {
            return true;
        }
        let Some(task) = self.queues.take(stream) else {
            return false;
        };
        if let Err(error) = self.run(&task, cpu) {
            self.fail(error);
        }
        for buffer in self.buffers.leave(&task.buffers()) {
            if let Err(error) = cpu.free(buffer) {
                self.fail(error);
            }
        }
        true
    }

    fn run(&self, task: &Task, cpu: &dyn Device) -> Result<()> {
        let buffers = task.buffers();
        if self.buffers.taken_back(&buffers) {
            return Ok(());
        }
        let _opened = self.buffers.open(&buffers)?;
        task.run(cpu)
    }

    /// Frees a buffer, and records as a failure that queued tasks use it.
    ///
    /// # Errors
    /// `INVALID` for a buffer that does not exist; `DEVICE` for one that queued tasks use.
    pub fn free(&mut self, buffer: espalier_interface::Buffer, cpu: &dyn Device) -> Result<()> {
        match self.buffers.free(buffer)? {
            Freed::Unused => {
                self.follow(Call::Free(buffer));
                cpu.free(buffer)
            }
            Freed::InUse(users) => {
                self.counts.freed_in_use += 1;
                let error = PluginError::new(
                    ErrorCode::DEVICE,
                    format!(
                        "buffer {} was freed while {users} queued tasks use it: expected a wait for \
                         them before",
                        buffer.0
                    ),
                );
                self.fail(error.clone());
                self.follow(Call::Free(buffer));
                Err(error)
            }
        }
    }

    /// Follows a call of the host. A race is a failure that the next wait of the host reports.
    pub fn follow(&mut self, call: Call) {
        if let Some(race) = self.follower.follow(call) {
            self.raced(&race);
        }
    }

    fn raced(&mut self, race: &Race) {
        self.counts.races += 1;
        if self.follower.reports() {
            self.fail(PluginError::new(ErrorCode::DEVICE, race.to_string()));
        }
    }

    fn fail(&mut self, error: PluginError) {
        self.failure.get_or_insert(error);
    }

    /// Tells the host of the first failure since the last call.
    ///
    /// # Errors
    /// That failure.
    pub fn report(&mut self) -> Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// What is alive.
    pub fn live(&self) -> Live {
        Live {
            events: self.queues.events() as u64,
            kernels: self.kernels.len() as u64,
            buffers: self.buffers.live() as u64,
            streams: self.queues.len() as u64,
            tasks: self.queues.waiting() as u64,
        }
    }
}
