//! Native handles of streams: tasks of other libraries -> tasks on the device's queues.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use espalier_interface::{Result, Stream};
use late_native::{NativeSpan, NativeStream, NativeTask};

use crate::memory::Buffers;
use crate::races::{Access, Does};
use crate::task::Task;

/// A device that takes tasks of other libraries.
pub trait TakesTasks {
    /// Puts a task on a stream.
    ///
    /// # Errors
    /// `INVALID` for a stream that does not exist. The error of `task`.
    fn put_native(&self, stream: Stream, task: impl FnOnce(&Buffers) -> Result<Task>)
    -> Result<()>;
}

/// The handles of a device's streams, made when they are asked for.
#[derive(Default)]
pub struct Handles {
    made: Mutex<HashMap<Stream, Box<NativeStream>>>,
}

impl Handles {
    /// The handle of a stream of `device`.
    pub fn of<D: TakesTasks>(&self, device: &D, stream: Stream) -> NonNull<()> {
        let made = self.made.lock();
        let mut made = made.unwrap_or_else(PoisonError::into_inner);
        let handle = made.entry(stream).or_insert_with(|| {
            Box::new(NativeStream {
                device: std::ptr::from_ref(device).expose_provenance(),
                stream: stream.0,
                enqueue: enqueue::<D>,
            })
        });
        NonNull::from(&mut **handle).cast()
    }
}

/// Puts a task of another library on a stream.
///
/// # Safety
/// As [`NativeStream::enqueue`].
unsafe extern "C" fn enqueue<D: TakesTasks>(
    stream: *const NativeStream,
    task: *const NativeTask,
) -> u32 {
    // SAFETY: the caller's promise.
    let (stream, task) = unsafe { (&*stream, &*task) };
    let device = std::ptr::with_exposed_provenance::<D>(stream.device);
    // SAFETY: a handle lives as long as its device, which does not move while it is open.
    let device = unsafe { &*device };
    // SAFETY: the caller's promise.
    let spans = unsafe { std::slice::from_raw_parts(task.spans, task.count) };
    u32::from(put(device, Stream(stream.stream), task, spans).is_err())
}

fn put(
    device: &impl TakesTasks,
    stream: Stream,
    task: &NativeTask,
    spans: &[NativeSpan],
) -> Result<()> {
    let (run, argument) = (task.run, task.argument);
    device.put_native(stream, |buffers| {
        let access = |span: &NativeSpan| -> Result<Access> {
            let range = buffers.range_at(span.address, span.bytes)?;
            let does = if span.writes == 0 {
                Does::Reads
            } else {
                Does::Writes
            };
            Ok(Access { range, does })
        };
        let accesses = spans.iter().map(access).collect::<Result<_>>()?;
        Ok(Task::Native {
            run,
            argument,
            accesses,
        })
    })
}
