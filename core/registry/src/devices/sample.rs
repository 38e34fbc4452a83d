//! A device and one product on it -> what the backend logs about it.

use std::sync::{Mutex, PoisonError};

use espalier_interface::{
    Backend, BufferRange, DType, Device, ErrorCode, KernelRequest, Launch, LogLevel, MemoryKind,
    Operand, ParamOperand, Result, Services, Stream, WeightLayout,
};

/// The product in words.
pub const PRODUCT: &str = "256 x 1024 with 1024 x 1024 in f32";
/// Rows of its input.
const ROWS: u64 = 256;
/// Columns of its input, and of its output.
const WIDTH: u64 = 1024;

/// The host's services, which also keep what a plugin logs for the user.
pub struct Heard {
    services: &'static dyn Services,
    lines: Mutex<Vec<String>>,
}

impl Heard {
    /// Services that have heard nothing. They live as long as the program, as plugins may use them
    /// that long.
    pub fn over(services: &'static dyn Services) -> &'static Self {
        Box::leak(Box::new(Heard {
            services,
            lines: Mutex::default(),
        }))
    }

    /// The lines logged until now.
    pub fn take(&self) -> Vec<String> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *lines)
    }
}

impl Services for Heard {
    fn threads(&self) -> usize {
        self.services.threads()
    }

    fn parallel_for(&self, count: usize, body: &(dyn Fn(usize) + Sync)) {
        self.services.parallel_for(count, body);
    }

    fn log(&self, level: LogLevel, message: &str) {
        self.services.log(level, message);
        if level.0 <= LogLevel::INFO.0 {
            let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            lines.push(message.to_owned());
        }
    }

    fn progress(&self, task: &str, done: u64, total: u64) {
        self.services.progress(task, done, total);
    }

    fn cancelled(&self) -> bool {
        self.services.cancelled()
    }
}

/// Computes [`PRODUCT`] of zeros on the backend's first device, which is closed again. Does nothing
/// on a device that does not offer the op.
///
/// # Errors
/// A call of the backend that fails.
pub fn multiply(backend: &dyn Backend) -> Result<()> {
    let device = &*backend.open(0)?;
    let value = Operand::per_token(WIDTH, DType::F32);
    let weight = ParamOperand {
        shape: vec![WIDTH, WIDTH],
        layout: WeightLayout::Dense(DType::F32),
    };
    let request = KernelRequest::new("linear")
        .inputs(vec![value.clone()])
        .params(vec![weight])
        .outputs(vec![value])
        .limits(ROWS, 1);
    let prepared = match device.prepare(&request, &[None]) {
        Err(error) if error.code == ErrorCode::UNSUPPORTED => return Ok(()),
        prepared => prepared?,
    };
    let value_bytes = 4 * ROWS * WIDTH;
    let ranges = [
        zeros(device, value_bytes)?,
        zeros(device, 4 * WIDTH * WIDTH)?,
        zeros(device, value_bytes)?,
        zeros(device, prepared.workspace_bytes)?,
    ];
    device.launch(&Launch {
        kernel: prepared.kernel,
        stream: Stream(0),
        ranges: &ranges[..3],
        workspace: ranges[3],
        tokens: ROWS,
        sequences: 1,
        scalars: &[],
    })?;
    device.synchronize(Stream(0))?;
    device.release(prepared.kernel)?;
    ranges
        .iter()
        .try_for_each(|range| device.free(range.buffer))
}

fn zeros(device: &dyn Device, bytes: u64) -> Result<BufferRange> {
    let range = BufferRange {
        buffer: device.alloc(bytes, MemoryKind::DEVICE)?,
        offset: 0,
        bytes,
    };
    device.upload(&vec![0; bytes as usize], range, Stream(0))?;
    Ok(range)
}
