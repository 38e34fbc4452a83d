//! A plan -> the device that carries it out, and the kernels that it has prepared for it.

use std::sync::Arc;

use espalier_interface::{Backend, Device};
use espalier_plan::plan::RunPlan;
use espalier_registry::Chosen;

use super::{PreparedKernels, Storage};
use crate::Error;
use crate::error::BackendCall;

/// A run before its weights are read: its plan, its device and its kernels.
pub struct PreparedRun {
    /// The plan.
    pub plan: RunPlan,
    /// The device of the rank.
    pub device: Arc<dyn Device>,
    /// Its kernels.
    pub kernels: PreparedKernels,
}

impl PreparedRun {
    /// Prepares the kernels of `plan` and adds their workspace to its memory.
    ///
    /// # Errors
    /// `Error::Plugin` for an op that the backend lacks or refuses.
    pub fn new(
        mut plan: RunPlan,
        device: Arc<dyn Device>,
        backend: &Chosen<dyn Backend>,
    ) -> Result<Self, Error> {
        let kernels = PreparedKernels::new(&device, &plan)
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
    /// `Error::Plugin` for an allocation that fails.
    pub fn storage(&self) -> Result<Storage, Error> {
        Storage::new(&self.device, &self.plan.storage_layout()).during("alloc")
    }
}
