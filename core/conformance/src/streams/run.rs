//! A program -> calls of a device, and what its buffers hold afterwards.
#![allow(unsafe_code)] // Pinned memory, which the host reads where an event says that it may.

use std::collections::HashMap;
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use espalier_interface::{
    BufferRange, DType, Device, ErrorCode, Event, Kernel, KernelRequest, Launch, MemoryKind,
    Operand, Prepared, Stream,
};

use super::program::{BUFFERS, Program, STREAMS, StreamTask};
use super::{buffer, compare, streams, uploaded};
use crate::checked::{Checked, Fault, ensure, refusal};

/// Rows and columns of a buffer.
const SHAPE: [u64; 2] = [512, 512];

/// Elements of a buffer, f32.
pub const ELEMENTS: usize = (SHAPE[0] * SHAPE[1]) as usize;

/// How long a device may take for a program.
const PATIENCE: Duration = Duration::from_secs(120);

/// The wait that a read of the host follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// `query` says that an event is complete.
    Query,
    /// `synchronize`.
    Synchronize,
    /// `download`, on the stream that the work is on.
    Download,
}

impl Behind {
    /// All of them.
    pub const ALL: [Behind; 3] = [Behind::Query, Behind::Synchronize, Behind::Download];
}

impl fmt::Display for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Behind::Query => "an event that is complete",
            Behind::Synchronize => "`synchronize`",
            Behind::Download => "nothing but `download` itself",
        })
    }
}

/// The streams, buffers and kernels of a trial.
pub struct Trial<'a> {
    device: &'a dyn Device,
    streams: [Stream; STREAMS],
    buffers: Vec<BufferRange>,
    pinned: BufferRange,
    /// One for each stream: launches of two streams may run at once.
    workspaces: Vec<BufferRange>,
    add: Kernel,
}

impl<'a> Trial<'a> {
    /// The trial of `device`; skipped where it has no `add`.
    pub fn new(device: &'a dyn Device) -> Checked<Self> {
        let operand = || Operand::per_token(SHAPE[1], DType::F32);
        let request = KernelRequest::new("add")
            .inputs(vec![operand(), operand()])
            .outputs(vec![operand()])
            .limits(SHAPE[0], 1);
        let prepared = match device.prepare(&request, &[]) {
            Err(error) if error.code == ErrorCode::UNSUPPORTED => {
                refusal(&error)?;
                return Err(Fault::Skipped(error.message));
            }
            prepared => prepared?,
        };
        let Prepared {
            kernel: add,
            workspace_bytes,
        } = prepared;
        let bytes = workspace_bytes.max(64);
        let workspace = |_| -> Checked<BufferRange> {
            Ok(BufferRange {
                buffer: device.alloc(bytes, MemoryKind::DEVICE)?,
                offset: 0,
                bytes,
            })
        };
        let buffers = (0..BUFFERS).map(|_| buffer(device, MemoryKind::DEVICE));
        Ok(Trial {
            device,
            streams: streams(device)?,
            buffers: buffers.collect::<Checked<_>>()?,
            pinned: buffer(device, MemoryKind::PINNED)?,
            workspaces: (0..STREAMS).map(workspace).collect::<Checked<_>>()?,
            add,
        })
    }

    /// Runs a program and compares all buffers.
    pub fn run(&self, program: &Program) -> Checked {
        self.clear()?;
        let mut expected = vec![vec![0.0; ELEMENTS]; BUFFERS];
        let mut last_use = HashMap::new();
        for (at, placed) in program.steps.iter().enumerate() {
            last_use.extend(placed.waits.iter().map(|&awaited| (awaited, at)));
        }
        let mut events: HashMap<usize, Event> = HashMap::new();
        for (at, placed) in program.steps.iter().enumerate() {
            let stream = self.streams[placed.stream];
            for awaited in &placed.waits {
                let event = events[awaited];
                self.device.wait(stream, event)?;
                if last_use[awaited] == at {
                    // It may be incomplete: the stream waits for it all the same.
                    self.device.free_event(event)?;
                }
            }
            self.put(placed.step, placed.stream)?;
            if last_use.contains_key(&at) {
                events.insert(at, self.device.record(stream)?);
            }
            placed.step.apply(&mut expected);
        }
        self.join()?;
        for (index, expected) in expected.iter().enumerate() {
            let mut found = vec![0; 4 * ELEMENTS];
            let from = self.buffers[index];
            self.device.download(from, &mut found, Stream(0))?;
            compare(&format!("buffer {index}"), &found, expected)?;
        }
        Ok(())
    }

    /// A chain of sums on one stream, then a copy for the host on another; both run while the
    /// host reads.
    pub fn read(&self, behind: Behind) -> Checked {
        self.clear()?;
        const SUMS: usize = 1;
        let [_, sums, copies] = self.streams;
        let mut expected = vec![vec![0.0; ELEMENTS]; BUFFERS];
        let mut put = |step: StreamTask| {
            step.apply(&mut expected);
            self.put(step, SUMS)
        };
        put(StreamTask::Upload { to: 0, seed: 5 })?;
        put(StreamTask::Upload { to: 1, seed: 6 })?;
        for _ in 0..8 {
            put(StreamTask::Add { a: 0, b: 1, to: 2 })?;
            put(StreamTask::Add { a: 2, b: 1, to: 0 })?;
        }
        let summed = self.device.record(sums)?;
        self.device.wait(copies, summed)?;
        self.device.free_event(summed)?;
        self.device.copy(self.buffers[0], self.pinned, copies)?;
        // Work of the other stream that the read has nothing to do with.
        put(StreamTask::Add { a: 2, b: 1, to: 3 })?;
        let mut found = vec![0; 4 * ELEMENTS];
        match behind {
            Behind::Query => {
                let copied = self.device.record(copies)?;
                self.wait_for(copied)?;
                self.device.free_event(copied)?;
                self.read_pinned(&mut found)?;
            }
            Behind::Synchronize => {
                self.device.synchronize(copies)?;
                self.read_pinned(&mut found)?;
            }
            Behind::Download => self.device.download(self.pinned, &mut found, copies)?,
        }
        compare("the copy for the host", &found, &expected[0])?;
        self.join()
    }

    /// Frees all that the trial has made.
    pub fn close(self) -> Checked {
        self.join()?;
        self.device.release(self.add)?;
        let buffers = self.buffers.iter().chain(&self.workspaces);
        for range in buffers.chain([&self.pinned]) {
            self.device.free(range.buffer)?;
        }
        Ok(())
    }

    /// Puts a step on stream number `index`.
    fn put(&self, step: StreamTask, index: usize) -> Checked {
        let stream = self.streams[index];
        let range = |index: usize| self.buffers[index];
        match step {
            StreamTask::Upload { to, seed } => {
                let elements = uploaded(seed).into_iter();
                let mut bytes: Vec<u8> = elements.flat_map(f32::to_le_bytes).collect();
                self.device.upload(&bytes, range(to), stream)?;
                // The bytes may be used again as soon as the call returns.
                bytes.fill(0xA5);
                std::hint::black_box(&bytes);
            }
            StreamTask::Copy { from, to } => self.device.copy(range(from), range(to), stream)?,
            StreamTask::Add { a, b, to } => self.device.launch(&Launch {
                kernel: self.add,
                stream,
                ranges: &[range(a), range(b), range(to)],
                workspace: self.workspaces[index],
                tokens: SHAPE[0],
                sequences: 1,
                scalars: &[],
            })?,
        }
        Ok(())
    }

    /// Begins with zeros, and with nothing to do on any stream.
    fn clear(&self) -> Checked {
        self.join()?;
        let zeros = vec![0; 4 * ELEMENTS];
        for &to in self.buffers.iter().chain([&self.pinned]) {
            self.device.upload(&zeros, to, Stream(0))?;
        }
        Ok(self.device.synchronize(Stream(0))?)
    }

    /// Waits until all streams have done all.
    fn join(&self) -> Checked {
        for stream in self.streams {
            let event = self.device.record(stream)?;
            self.device.synchronize(stream)?;
            let complete = self.device.query(event)?;
            ensure(complete, || {
                "an event is not complete although its stream was waited for".to_owned()
            })?;
            self.device.free_event(event)?;
        }
        Ok(())
    }

    fn wait_for(&self, event: Event) -> Checked {
        let begin = Instant::now();
        while !self.device.query(event)? {
            ensure(begin.elapsed() < PATIENCE, || {
                format!("an event is not complete after {} s", PATIENCE.as_secs())
            })?;
            thread::sleep(Duration::from_micros(50));
        }
        Ok(())
    }

    /// The pinned memory as the host sees it now, or by a download where it has no address.
    fn read_pinned(&self, out: &mut [u8]) -> Checked {
        let Some(address) = self.device.host_address(self.pinned) else {
            return Ok(self.device.download(self.pinned, out, self.streams[2])?);
        };
        // SAFETY: the buffer has that many bytes and lives. The device has reported the copy to it
        // as done, and no other task writes it.
        unsafe { std::ptr::copy_nonoverlapping(address.as_ptr(), out.as_mut_ptr(), out.len()) };
        Ok(())
    }
}
