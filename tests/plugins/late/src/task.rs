//! A call that was put on a stream: what it does when it runs, and the buffers that it uses.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use espalier_interface::{
    Buffer, BufferRange, Device, ErrorCode, Kernel, Launch, PluginError, Result, Stream,
};

use crate::queues::Point;
use crate::races::{Access, Does};

/// What is known of a kernel since it was prepared.
#[derive(Clone, Debug)]
pub struct KnownKernel {
    /// Bytes of workspace of a launch.
    pub workspace_bytes: u64,
    /// `launch of` and its op, for messages.
    pub what: Arc<str>,
    /// Outputs, which are the last ranges of a launch.
    pub outputs: usize,
    /// Whether `fail_launch` counts its launches.
    pub may_fail: bool,
}

/// A task of a stream. Its operands are read when it runs.
#[derive(Debug)]
pub enum Task {
    /// Runs a kernel.
    Launch {
        /// The kernel.
        kernel: Kernel,
        /// What is known of it.
        known: KnownKernel,
        /// Its operands.
        ranges: Vec<BufferRange>,
        /// Its workspace; none where it needs none.
        workspace: Option<BufferRange>,
        /// `T`.
        tokens: u64,
        /// `S`.
        sequences: u64,
        /// The op's scalars.
        scalars: Vec<f64>,
        /// Whether it fails when it runs, as an option asks.
        fails: bool,
    },
    /// Copies between buffers.
    Copy {
        /// The source.
        from: BufferRange,
        /// The destination, of the same length.
        to: BufferRange,
    },
    /// Writes bytes that were taken from the host at the call.
    Upload {
        /// The bytes.
        bytes: Vec<u8>,
        /// The destination, of the same length.
        to: BufferRange,
    },
    /// Runs a function of another library.
    Native {
        /// The function.
        run: extern "C" fn(usize) -> u32,
        /// Its argument.
        argument: usize,
        /// The memory that it uses.
        accesses: Vec<Access>,
    },
    /// Holds its stream back until a point of another stream is reached.
    Wait(Point),
    /// Holds its stream back for some time.
    Pause(Pause),
}

/// Time that passes on a stream. It begins when it is looked at first.
#[derive(Debug)]
pub struct Pause {
    since: OnceLock<Instant>,
    lasts: Duration,
}

impl Pause {
    /// A pause that lasts this long.
    pub fn new(lasts: Duration) -> Self {
        Pause {
            since: OnceLock::new(),
            lasts,
        }
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        self.since.get_or_init(Instant::now).elapsed() >= self.lasts
    }
}

impl Task {
    /// The task of `launch`, whose workspace is used only where its kernel needs some.
    pub fn launch(launch: &Launch<'_>, known: &KnownKernel) -> Task {
        let needs = known.workspace_bytes;
        Task::Launch {
            kernel: launch.kernel,
            known: known.clone(),
            ranges: launch.ranges.to_vec(),
            workspace: (needs > 0).then_some(BufferRange {
                bytes: needs.min(launch.workspace.bytes),
                ..launch.workspace
            }),
            tokens: launch.tokens,
            sequences: launch.sequences,
            scalars: launch.scalars.to_vec(),
            fails: false,
        }
    }

    /// The same task, which fails when it runs if it is a launch.
    pub fn failing(mut self) -> Task {
        if let Task::Launch { fails, .. } = &mut self {
            *fails = true;
        }
        self
    }

    /// What it is, for messages.
    pub fn what(&self) -> Arc<str> {
        match self {
            Task::Launch { known, .. } => Arc::clone(&known.what),
            Task::Copy { .. } => "copy".into(),
            Task::Upload { .. } => "upload".into(),
            Task::Native { .. } => "call of another library".into(),
            Task::Wait(_) => "wait".into(),
            Task::Pause(_) => "pause".into(),
        }
    }

    /// The ranges that it uses, and what it does with them.
    pub fn accesses(&self) -> Vec<Access> {
        let access = |does| move |&range: &BufferRange| Access { range, does };
        match self {
            Task::Launch {
                known,
                ranges,
                workspace,
                ..
            } => {
                let (read, written) = ranges.split_at(ranges.len().saturating_sub(known.outputs));
                let written = written.iter().chain(workspace);
                let written = written.map(access(Does::Writes));
                read.iter()
                    .map(access(Does::Reads))
                    .chain(written)
                    .collect()
            }
            Task::Copy { from, to } => {
                vec![access(Does::Reads)(from), access(Does::Writes)(to)]
            }
            Task::Upload { to, .. } => vec![access(Does::Writes)(to)],
            Task::Native { accesses, .. } => accesses.clone(),
            Task::Wait(_) | Task::Pause(_) => Vec::new(),
        }
    }

    /// The ranges that it uses.
    pub fn ranges(&self) -> Vec<BufferRange> {
        match self {
            Task::Launch {
                ranges, workspace, ..
            } => ranges.iter().chain(workspace).copied().collect(),
            Task::Copy { from, to } => vec![*from, *to],
            Task::Upload { to, .. } => vec![*to],
            Task::Native { accesses, .. } => accesses.iter().map(|one| one.range).collect(),
            Task::Wait(_) | Task::Pause(_) => Vec::new(),
        }
    }

    /// The buffers that it uses, each once.
    pub fn buffers(&self) -> Vec<Buffer> {
        let mut buffers: Vec<Buffer> = self.ranges().iter().map(|range| range.buffer).collect();
        buffers.sort_unstable();
        buffers.dedup();
        buffers
    }

    /// Does it on the `cpu` device, whose calls are done when they return.
    ///
    /// # Errors
    /// Those of the `cpu` device.
    pub fn run(&self, cpu: &dyn Device) -> Result<()> {
        let stream = Stream(0);
        match self {
            Task::Launch {
                fails: true, known, ..
            } => {
                let message = format!("{}: it failed as `fail_launch` asks", known.what);
                Err(PluginError::new(ErrorCode::DEVICE, message))
            }
            Task::Launch {
                kernel,
                ranges,
                workspace,
                tokens,
                sequences,
                scalars,
                ..
            } => {
                let nothing = BufferRange {
                    buffer: Buffer(0),
                    offset: 0,
                    bytes: 0,
                };
                cpu.launch(&Launch {
                    kernel: *kernel,
                    stream,
                    ranges,
                    workspace: workspace.unwrap_or(nothing),
                    tokens: *tokens,
                    sequences: *sequences,
                    scalars,
                })
            }
            Task::Copy { from, to } => cpu.copy(*from, *to, stream),
            Task::Upload { bytes, to } => cpu.upload(bytes, *to, stream),
            Task::Native { run, argument, .. } => match run(*argument) {
                0 => Ok(()),
                code => Err(PluginError::new(
                    ErrorCode(code),
                    "a call of another library on the stream failed",
                )),
            },
            Task::Wait(_) | Task::Pause(_) => Ok(()),
        }
    }
}
