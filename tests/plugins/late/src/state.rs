//! All of a device that changes, and how its tasks are put, chosen and run.

use std::collections::HashMap;

use espalier_interface::{Device, ErrorCode, Kernel, PluginError, Result};

use crate::counts::{Counts, Live};
use crate::memory::{Buffers, Freed};
use crate::order::{Moment, Scheduler};
use crate::queues::{Point, Queues};
use crate::task::Task;

/// The state behind a device's lock.
pub struct State {
    /// Streams and events.
    pub queues: Queues,
    /// Buffers.
    pub buffers: Buffers,
    /// Bytes of workspace of each kernel.
    pub workspaces: HashMap<Kernel, u64>,
    /// Calls so far.
    pub counts: Counts,
    scheduler: Scheduler,
    /// The first failure that the host has not been told.
    failure: Option<PluginError>,
}

impl State {
    /// A device without buffers and kernels.
    pub fn new(scheduler: Scheduler) -> Self {
        State {
            queues: Queues::new(),
            buffers: Buffers::default(),
            workspaces: HashMap::new(),
            counts: Counts::default(),
            scheduler,
            failure: None,
        }
    }

    /// Puts a task, whose ranges were checked, on a stream. Then what the order lets run runs.
    pub fn put(&mut self, stream: usize, task: Task, cpu: &dyn Device) {
        self.buffers.enter(&task.buffers());
        self.queues.put(stream, task);
        let mut left = self.scheduler.limit(Moment::Put).unwrap_or(u64::MAX);
        while left > 0 && self.step(Moment::Put, cpu) {
            left -= 1;
        }
    }

    /// Runs one task towards `point`; false where it is reached.
    pub fn approach(&mut self, point: Point, cpu: &dyn Device) -> bool {
        self.step(Moment::Waiting(point), cpu)
    }

    fn step(&mut self, moment: Moment, cpu: &dyn Device) -> bool {
        let Some(stream) = self.scheduler.next(&self.queues, moment) else {
            return false;
        };
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
            Freed::Unused => cpu.free(buffer),
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
                Err(error)
            }
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
            kernels: self.workspaces.len() as u64,
            buffers: self.buffers.live() as u64,
            streams: self.queues.len() as u64,
            tasks: self.queues.waiting() as u64,
        }
    }
}
