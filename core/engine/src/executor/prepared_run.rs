//! A plan -> the device that carries it out, and the kernels that it has prepared for it.

use std::sync::Arc;

use espalier_interface::{Backend, Device};
use espalier_plan::plan::RunPlan;
use espalier_registry::Chosen;

use super::{PreparedKernels, Storage};
use crate::Error;
use crate::error::BackendCall;

/// A run before its weights are read: its plan, and all that its device does for it.
pub struct PreparedRun {
    /// The plan.
    pub plan: RunPlan,
    /// The device of the rank.
    pub device: Arc<dyn Device>,
    /// Its kernels.
    pub kernels: PreparedKernels,
}

impl PreparedRun {
    /// Prepares the kernels of `plan`, whose memory counts their workspace from then on.
    ///
    /// # Errors
    /// An op that the backend lacks, or what else it refuses.
    pub fn new(
        mut plan: RunPlan,
        device: Arc<dyn Device>,
        backend: &Chosen<dyn Backend>,
    ) -> Result<Self, Error> {
        let kernels = PreparedKernels::new(device.as_ref(), &plan)
            .map_err(|error| backend.failed("prepare", error))?;
        plan.set_workspace(kernels.workspace_bytes);
        Ok(PreparedRun {
            plan,
            device,
            kernels,
        })
    }

    /// Allocates the run's storage.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn storage(&self) -> Result<Storage, Error> {
        Storage::new(&self.device, &self.plan.storage_layout()).during("alloc")
    }
}
