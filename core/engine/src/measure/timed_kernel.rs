//! A kernel that is prepared to be timed.

use espalier_interface::{Device, Kernel, KernelRequest};

use crate::error::{BackendCall, Result};

/// A kernel, released when this is dropped.
pub(super) struct TimedKernel<'a> {
    device: &'a dyn Device,
    /// The kernel.
    pub(super) kernel: Kernel,
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
}

impl Drop for TimedKernel<'_> {
    fn drop(&mut self) {
        // A failure to release cannot be handled here.
        let _ = self.device.release(self.kernel);
    }
}
