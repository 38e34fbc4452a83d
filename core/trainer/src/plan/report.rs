//! A session -> what `host plan` prints: memory by category, the largest micro-batch, and the speed of light.

use std::collections::BTreeMap;

use serde::Serialize;

use super::assumed::HostMemory;
use super::{Assumed, MemoryPlan};
use crate::Error;
use crate::measure;
use crate::session::Session;

/// A plan in numbers; as JSON the answer of `host plan --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanReport {
    /// The model's directory.
    pub model: String,
    /// The quantizer by which its checkpoint is packed already, so that nothing is encoded anew.
    pub packed_by: Option<String>,
    /// Components, one a role.
    pub plugins: Vec<String>,
    /// Parameters in all, and those that are trained.
    pub num_params: u64,
    /// Parameters that are trained.
    pub num_trained_params: u64,
    /// Whether rows were read; else the largest micro-batch is the config's.
    pub rows_read: bool,
    /// Optimizer steps.
    pub total_steps: u64,
    /// Packed tokens of the largest micro-batch.
    pub max_tokens: u64,
    /// Sequences of the micro-batch that has most.
    pub max_sequences: u64,
    /// Device.
    pub device: String,
    /// True where its memory is exact, not estimated.
    pub exact: bool,
    /// The backend that was asked for the workspace of kernels in place of the assumed device's own.
    pub stand_in: Option<String>,
    /// The host's part, where the device is an assumed one with memory of its own.
    pub host: Option<HostMemory>,
    /// Bytes by category.
    pub memory: MemoryPlan,
    /// Frozen weights by how they are stored.
    pub weights_by_layout: BTreeMap<String, u64>,
    /// Peak of a step.
    pub step_peak_bytes: u64,
    /// Peak while loading.
    pub loading_peak_bytes: u64,
    /// Peak of the run.
    pub peak_bytes: u64,
    /// Memory that can be had, beside what the program holds.
    pub available_bytes: u64,
    /// Whether the run fits.
    pub fits: bool,
    /// Bytes that a step moves between host and device or between ranks.
    pub bytes_moved_per_step: u64,
    /// Floating-point operations of the first step.
    pub step_flops: u64,
    /// The device's measured matrix-product rate in the compute dtype, operations a second; not of an assumed device.
    pub gemm_flops_per_sec: Option<f64>,
    /// The first step's time if it ran at that rate: no step is faster.
    pub light_step_secs: Option<f64>,
}

impl PlanReport {
    /// The report of a session.
    ///
    /// # Errors
    /// What the backend reports while its rate is measured.
    pub fn new(session: &Session) -> Result<Self, Error> {
        PlanReport::of(session, &Assumed::default())
    }

    /// The report of a session that was opened for an assumed machine.
    ///
    /// # Errors
    /// As [`PlanReport::new`].
    pub fn of(session: &Session, assumed: &Assumed) -> Result<Self, Error> {
        let plan = &session.plan;
        let rate = match assumed.device {
            None => Some(measure::gemm_rate(
                plan.device.as_ref(),
                plan.dtypes.compute,
            )?),
            Some(_) => None,
        };
        let (memory, host) = assumed.divide(plan);
        let summary = session.summary();
        let rows = session.data.as_ref().map(|data| &data.train);
        let step_flops = match rows.filter(|rows| rows.total_steps() > 0) {
            Some(rows) => {
                let micro_batches = &rows.step(0)?.micro_batches;
                micro_batches
                    .iter()
                    .map(|micro| plan.flops.micro_batch(micro))
                    .sum()
            }
            None => 0,
        };
        let available = assumed.available(plan);
        let backend = &session.components.backend.identity.component;
        Ok(PlanReport {
            model: summary.model,
            packed_by: session
                .components
                .quantizers
                .packed()
                .map(|packed| packed.component().to_owned()),
            plugins: summary.plugins,
            num_params: summary.num_params,
            num_trained_params: summary.num_trained_params,
            rows_read: rows.is_some(),
            total_steps: summary.total_steps,
            max_tokens: plan.demand.limits.max_tokens,
            max_sequences: plan.demand.limits.max_sequences,
            device: plan.device_info.name.clone(),
            exact: plan.device_info.exact_memory,
            stand_in: assumed.device.map(|_| backend.clone()),
            memory,
            weights_by_layout: plan.weights_by_layout(),
            step_peak_bytes: memory.step_peak(),
            loading_peak_bytes: memory.loading_peak(),
            peak_bytes: memory.peak(),
            available_bytes: available,
            fits: memory.needed() <= available && host.is_none_or(|host| host.fits()),
            host,
            bytes_moved_per_step: 0,
            step_flops,
            gemm_flops_per_sec: rate,
            light_step_secs: rate.map(|rate| step_flops as f64 / rate),
        })
    }
}
