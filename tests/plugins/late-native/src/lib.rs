//! What the backend `late` names natively, for libraries that work on its devices: a stream that
//! takes functions of the host as tasks, as `cudaLaunchHostFunc` does.

/// A range of the device's memory that a task uses, by its native address.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NativeSpan {
    /// The first byte.
    pub address: usize,
    /// Length in bytes.
    pub bytes: u64,
    /// 1 where the task writes it, 0 where it only reads.
    pub writes: u32,
}

/// A function that runs when its stream comes to it. The pages of its spans are open meanwhile.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NativeTask {
    /// The function: 0, or a code of failure.
    pub run: extern "C" fn(argument: usize) -> u32,
    /// Its argument. The function is called once at most.
    pub argument: usize,
    /// The memory that it uses.
    pub spans: *const NativeSpan,
    /// How many spans.
    pub count: usize,
}

/// The native handle of a stream: a pointer to this, which lives as long as the device.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NativeStream {
    /// The device.
    pub device: usize,
    /// The stream's number.
    pub stream: u64,
    /// Puts a task on the stream: 0, or 1 where it was refused.
    ///
    /// # Safety
    /// The first argument is the handle; the spans are valid during the call.
    pub enqueue: unsafe extern "C" fn(stream: *const NativeStream, task: *const NativeTask) -> u32,
}
