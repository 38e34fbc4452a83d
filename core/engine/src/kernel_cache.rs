//! Requests -> a device's kernels; equal requests share one.

use std::collections::HashMap;
use std::sync::Arc;

use espalier_compile::decompose::BackendOps;
use espalier_interface::{
    Decoder, Device, ErrorCode, Kernel, KernelRequest, PluginError, Prepared, Result,
};
use espalier_registry::answer::MOST_BYTES;

/// The prepared kernels of one device, released when this is dropped. Launches of them may be
/// incomplete then.
pub(crate) struct KernelCache {
    device: Arc<dyn Device>,
    made: HashMap<String, Prepared>,
    /// Every kernel that was prepared, each once.
    all: Vec<Kernel>,
}

impl KernelCache {
    /// No kernel yet.
    pub(crate) fn new(device: &Arc<dyn Device>) -> Self {
        KernelCache {
            device: Arc::clone(device),
            made: HashMap::new(),
            all: Vec::new(),
        }
    }

    /// The kernel of `request`. One with a decoder is not shared: it decodes one weight.
    ///
    /// # Errors
    /// `UNSUPPORTED` for an op that is not among `ops`, `PROTOCOL` for a workspace that is too
    /// large; the backend's error for a request that it refuses.
    pub(crate) fn prepare(
        &mut self,
        ops: &BackendOps,
        request: &KernelRequest,
        decoders: &[Option<Decoder>],
    ) -> Result<Prepared> {
        let shared = decoders.iter().all(Option::is_none);
        let key = serde_json::to_string(request).expect("a request is plain data");
        if let (true, Some(&prepared)) = (shared, self.made.get(&key)) {
            return Ok(prepared);
        }
        ops.check(request)?;
        let prepared = self.device.prepare(request, decoders)?;
        self.all.push(prepared.kernel);
        if prepared.workspace_bytes > MOST_BYTES {
            let message = format!(
                "a kernel of op `{}` asks for {} bytes of workspace",
                request.op, prepared.workspace_bytes
            );
            return Err(PluginError::new(ErrorCode::PROTOCOL, message));
        }
        if shared {
            self.made.insert(key, prepared);
        }
        Ok(prepared)
    }
}

impl Drop for KernelCache {
    fn drop(&mut self) {
        // A failure to release cannot be handled here.
        for &kernel in &self.all {
            let _ = self.device.release(kernel);
        }
    }
}
