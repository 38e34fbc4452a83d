//! A kernel that is prepared to be timed.

use espalier_interface::{BufferRange, Device, Kernel, KernelRequest, Launch, Stream};

use super::fastest_of;
use crate::error::{BackendCall, Result};

/// A kernel, released when this is dropped.
pub(super) struct TimedKernel<'a> {
    device: &'a dyn Device,
    kernel: Kernel,
    /// Bytes of workspace for each launch, one at least.
    pub(super) workspace_bytes: u64,
}

impl<'a> TimedKernel<'a> {
    /// The kernel of `request`, whose params are dense.
    ///
    /// # Errors
    /// `Error::Plugin` where the backend refuses it.
    pub(super) fn new(device: &'a dyn Device, request: &KernelRequest) -> Result<Self> {
        let decoders = vec![None; request.params.len()];
        let prepared = device.prepare(request, &decoders).during("prepare")?;
        Ok(TimedKernel {
            device,
            kernel: prepared.kernel,
            workspace_bytes: prepared.workspace_bytes.max(1),
        })
    }

    /// Seconds of a launch for `tokens` tokens of one sequence: the fastest of `runs`, each of
    /// `launches` and one wait for the device.
    ///
    /// # Errors
    /// `Error::Plugin`: a call to the backend failed.
    pub(super) fn secs(
        &self,
        (ranges, workspace): (&[BufferRange], BufferRange),
        tokens: u64,
        [runs, launches]: [usize; 2],
    ) -> Result<f64> {
        let launch = || {
            self.device.launch(&Launch {
                kernel: self.kernel,
                stream: Stream(0),
                ranges,
                workspace,
                tokens,
                sequences: 1,
                scalars: &[],
            })
        };
        let fastest = fastest_of(runs, || {
            (0..launches).try_for_each(|_| launch().during("launch"))?;
            self.device.synchronize(Stream(0)).during("synchronize")
        })?;
        Ok(fastest / launches as f64)
    }
}

impl Drop for TimedKernel<'_> {
    fn drop(&mut self) {
        // A failure to release cannot be handled here.
        let _ = self.device.release(self.kernel);
    }
}
