//! The open device: calls of the host -> checks, and tasks on streams.

mod kernels;

use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use espalier_interface::{
    Buffer, BufferRange, Device, ErrorCode, Event, HostMemory, Memory, MemoryKind, PluginError,
    Result, Stream, Streams,
};

use crate::counts::{self, At};
use crate::follower::Follower;
use crate::memory::{BufferHome, Buffers};
use crate::native::{Handles, TakesTasks};
use crate::order::Scheduler;
use crate::pages::Pages;
use crate::queues::Point;
use crate::races::Call;
use crate::settings::{Hidden, HostOperands, Settings, Tells};
use crate::state::State;
use crate::task::Task;

/// Tasks that run between two queries of an event.
const TASKS_PER_QUERY: usize = 64;

/// A device that finishes later.
pub struct LateDevice {
    state: Mutex<State>,
    /// Has the memory and the kernels; its calls are done when they return.
    cpu: Box<dyn Device>,
    index: u32,
    host_operands: HostOperands,
    tells: Tells,
    /// Ops that it does not have.
    hides: Hidden,
    download: Duration,
    /// The number of the only download that takes as long; 0: all.
    slow_download: u64,
    /// The launch that begins this much later; 0: none.
    slow_launch: (u64, Duration),
    drop_record: u64,
    drop_wait: u64,
    cast_workspace: u64,
    fail_launch: u64,
    fail_op: Option<String>,
    report: Option<PathBuf>,
    report_every: u64,
    handles: Handles,
}

impl LateDevice {
    /// Device number `index`, which computes on `cpu`, a device of its own.
    pub fn new(cpu: Box<dyn Device>, index: u32, settings: &Settings) -> Self {
        let scheduler = Scheduler::new(settings.order, settings.seed, index);
        let [slow_device, slow_download] = settings.slow;
        let is_slow = slow_device == 0 || slow_device == u64::from(index) + 1;
        LateDevice {
            state: Mutex::new(State::new(scheduler, Follower::new(settings, index))),
            cpu,
            index,
            host_operands: settings.host_operands,
            tells: settings.tells,
            download: if is_slow {
                settings.download
            } else {
                Duration::ZERO
            },
            slow_download,
            slow_launch: if is_slow {
                settings.slow_launch
            } else {
                (0, Duration::ZERO)
            },
            hides: settings.hides.clone(),
            drop_record: settings.drop_record,
            drop_wait: settings.drop_wait,
            cast_workspace: settings.cast_workspace,
            fail_launch: settings.fail_launch,
            fail_op: settings.fail_op.clone(),
            report: settings.report.clone(),
            report_every: settings.report_every,
            handles: Handles::default(),
        }
    }

    // A kernel that panics leaves the state whole: its task is off the queue.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state for a call that waits for nothing; it may tell of a failure.
    fn told(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = self.lock();
        if self.tells == Tells::Calls {
            state.report()?;
        }
        Ok(state)
    }

    /// Runs tasks until all that is on `stream` now is done, and tells of a failure. Between tasks
    /// other threads may put more on streams.
    fn wait_for(&self, stream: usize) -> Result<MutexGuard<'_, State>> {
        let (point, moment) = {
            let mut state = self.lock();
            let point = state.queues.end(stream);
            (point, state.follower.host_waits(stream))
        };
        loop {
            let mut state = self.lock();
            if !state.approach(point, &*self.cpu) {
                state.follower.host_has_waited(moment);
                state.report()?;
                return Ok(state);
            }
        }
    }

    /// Counts a wait of the host, and writes a line where it is due.
    fn host_waited(&self, state: &mut State) -> Result<()> {
        state.counts.host_waits += 1;
        let waits = state.counts.host_waits;
        if self.report_every > 0 && waits.is_multiple_of(self.report_every) {
            self.write_counts(state, At::HostWait)?;
        }
        Ok(())
    }

    fn write_counts(&self, state: &State, at: At) -> Result<()> {
        let Some(path) = &self.report else {
            return Ok(());
        };
        let written = counts::append(path, self.index, at, state.counts, state.live());
        written.map_err(|why| {
            let message = format!("leak_report {}: {why}", path.display());
            PluginError::new(ErrorCode::DEVICE, message)
        })
    }

    fn alloc_closed(&self, bytes: u64, kind: MemoryKind) -> Result<(Buffer, BufferHome)> {
        let buffer = self.cpu.alloc(bytes, kind)?;
        let whole = BufferRange {
            buffer,
            offset: 0,
            bytes,
        };
        let start = self.cpu.host_address(whole);
        let start = start.expect("a buffer of the cpu has an address");
        // SAFETY: a buffer of the cpu is a mapping of its own, with a tail. It is freed after it
        // has left the table of buffers, with its pages.
        match unsafe { Pages::closed(start, bytes) } {
            Ok(pages) => Ok((buffer, BufferHome::Device(pages))),
            Err(error) => {
                self.cpu.free(buffer)?;
                Err(error)
            }
        }
    }
}

impl TakesTasks for LateDevice {
    fn put_native(
        &self,
        stream: Stream,
        task: impl FnOnce(&Buffers) -> Result<Task>,
    ) -> Result<()> {
        let mut state = self.lock();
        let stream = state.queues.index(stream)?;
        let task = task(&state.buffers)?;
        state.put(stream, task, &*self.cpu);
        Ok(())
    }
}

impl Drop for LateDevice {
    fn drop(&mut self) {
        // A test that reads the file finds the line missing.
        let _ = self.write_counts(&self.lock(), At::End);
        let _ = self.lock().follower.write();
    }
}

impl Memory for LateDevice {
    fn alloc(&self, bytes: u64, kind: MemoryKind) -> Result<Buffer> {
        let (buffer, place) = match kind {
            MemoryKind::PINNED => (self.cpu.alloc(bytes, kind)?, BufferHome::Pinned),
            MemoryKind::DEVICE | MemoryKind::MAPPED => self.alloc_closed(bytes, kind)?,
            MemoryKind(other) => {
                let message = format!("backend `late` has no memory of kind {other}");
                return Err(PluginError::unsupported(message));
            }
        };
        self.lock().buffers.add(buffer, bytes, place);
        Ok(buffer)
    }

    fn free(&self, buffer: Buffer) -> Result<()> {
        self.lock().free(buffer, &*self.cpu)
    }

    fn upload(&self, from: &[u8], to: BufferRange, stream: Stream) -> Result<()> {
        let mut state = self.told()?;
        let stream = state.queues.index(stream)?;
        state.buffers.place(to)?;
        check_lengths(from.len() as u64, to.bytes)?;
        let bytes = from.to_vec();
        state.put(stream, Task::Upload { bytes, to }, &*self.cpu);
        Ok(())
    }

    fn download(&self, from: BufferRange, to: &mut [u8], stream: Stream) -> Result<()> {
        let (index, number) = {
            let mut state = self.lock();
            state.counts.downloads += 1;
            state.buffers.place(from)?;
            check_lengths(from.bytes, to.len() as u64)?;
            let index = state.queues.index(stream)?;
            state.downloads(index, from);
            (index, state.counts.downloads)
        };
        let slow = self.slow_download == 0 || self.slow_download == number;
        if slow && !self.download.is_zero() {
            std::thread::sleep(self.download);
        }
        let mut state = self.wait_for(index)?;
        {
            let _opened = state.buffers.open(&[from.buffer])?;
            self.cpu.download(from, to, Stream(0))?;
        }
        self.host_waited(&mut state)
    }

    fn copy(&self, from: BufferRange, to: BufferRange, stream: Stream) -> Result<()> {
        let mut state = self.told()?;
        let stream = state.queues.index(stream)?;
        state.buffers.place(from)?;
        state.buffers.place(to)?;
        check_lengths(from.bytes, to.bytes)?;
        state.put(stream, Task::Copy { from, to }, &*self.cpu);
        Ok(())
    }

    /// Of pinned memory alone. Lent memory has the address that the host knows.
    fn host_address(&self, range: BufferRange) -> Option<NonNull<u8>> {
        let state = self.lock();
        let place = state.buffers.place(range).ok()?;
        matches!(place, BufferHome::Pinned)
            .then(|| self.cpu.host_address(range))
            .flatten()
    }

    fn import(&self, memory: HostMemory) -> Result<Buffer> {
        let buffer = self.cpu.import(memory)?;
        let mut state = self.lock();
        state.buffers.add(buffer, memory.bytes(), BufferHome::Lent);
        Ok(buffer)
    }

    /// Of device memory alone.
    fn native_address(&self, range: BufferRange) -> Option<NonNull<u8>> {
        self.lock().buffers.address(range)
    }
}

fn check_lengths(from: u64, to: u64) -> Result<()> {
    if from == to {
        return Ok(());
    }
    let message = format!("{from} bytes copied to a range of {to}");
    Err(PluginError::invalid(message))
}

impl Streams for LateDevice {
    fn stream(&self) -> Result<Stream> {
        Ok(self.lock().queues.open())
    }

    fn record(&self, stream: Stream) -> Result<Event> {
        let mut state = self.told()?;
        let stream = state.queues.index(stream)?;
        state.counts.records += 1;
        if state.counts.records == self.drop_record {
            // Reached before any task.
            let position = 0;
            let event = state.queues.record(Point { stream, position });
            state.follower.records_nothing(event);
            return Ok(event);
        }
        let point = state.queues.end(stream);
        let event = state.queues.record(point);
        state.follow(Call::Record(stream, event));
        Ok(event)
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<()> {
        let mut state = self.told()?;
        let stream = state.queues.index(stream)?;
        let point = state.queues.point(event)?;
        state.counts.waits += 1;
        if state.counts.waits != self.drop_wait {
            state.follow(Call::Wait(stream, event));
            state.put(stream, Task::Wait(point), &*self.cpu);
        }
        Ok(())
    }

    fn synchronize(&self, stream: Stream) -> Result<()> {
        let index = self.lock().queues.index(stream)?;
        let mut state = self.wait_for(index)?;
        self.host_waited(&mut state)
    }

    /// The device gets on by some tasks a query, as if time passed.
    fn query(&self, event: Event) -> Result<bool> {
        let mut state = self.told()?;
        let point = state.queues.point(event)?;
        let done = (0..TASKS_PER_QUERY).any(|_| !state.approach(point, &*self.cpu));
        if done {
            state.follow(Call::HostKnows(event));
        }
        Ok(done)
    }

    fn free_event(&self, event: Event) -> Result<()> {
        let mut state = self.lock();
        state.queues.free_event(event)?;
        state.follow(Call::FreeEvent(event));
        Ok(())
    }

    fn native_stream(&self, stream: Stream) -> Option<NonNull<()>> {
        self.lock().queues.index(stream).ok()?;
        Some(self.handles.of(self, stream))
    }

    fn native_device(&self) -> Option<u32> {
        Some(self.index)
    }
}
