//! A call that was put on a stream: what it does when it runs, and the buffers that it uses.

use espalier_interface::{Buffer, BufferRange, Device, Kernel, Launch, Result, Stream};

use crate::queues::Point;

/// A task of a stream. Its operands are read when it runs.
#[derive(Debug)]
pub enum Task {
    /// Runs a kernel.
    Launch {
        /// The kernel.
        kernel: Kernel,
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
    /// Holds its stream back until a point of another stream is reached.
    Wait(Point),
}

impl Task {
    /// The task of `launch`, whose workspace is used only where `workspace_bytes` is not 0.
    pub fn launch(launch: &Launch<'_>, workspace_bytes: u64) -> Task {
        Task::Launch {
            kernel: launch.kernel,
            ranges: launch.ranges.to_vec(),
            workspace: (workspace_bytes > 0).then_some(launch.workspace),
            tokens: launch.tokens,
            sequences: launch.sequences,
            scalars: launch.scalars.to_vec(),
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
            Task::Wait(_) => Vec::new(),
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
                kernel,
                ranges,
                workspace,
                tokens,
                sequences,
                scalars,
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
            Task::Wait(_) => Ok(()),
        }
    }
}
