//! A session -> the output of `host plan`: memory by category, the largest micro-batch, and the
//! time at peak.

use std::collections::BTreeMap;

use espalier_config::Config;
use espalier_engine::measure;
use espalier_plan::param_groups::ParamGroup;
use espalier_plan::plan::{
    Arithmetic, CalibrationPlan, HostMemoryPlan, IdleRanks, Launches, MemoryPlan, Speeds, StepTime,
    Work,
};
use espalier_registry::ComponentSources;
use espalier_system::memory;
use espalier_system::world::World;
use serde::Serialize;

use super::asked::Asked;
use super::auto::Auto;
use super::speeds::measured;
use crate::Error;
use crate::session::Session;

/// A plan in numbers; as JSON the output of `host plan --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanReport {
    /// The model's directory.
    pub model: String,
    /// The quantizer of a packed checkpoint, which is not encoded again.
    pub packed_by: Option<String>,
    /// The search result, where it was searched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto: Option<Auto>,
    /// Components, one per role.
    pub plugins: Vec<String>,
    /// Their sources.
    pub plugin_places: ComponentSources,
    /// All parameters.
    pub num_params: u64,
    /// Trained parameters.
    pub num_trained_params: u64,
    /// The optimizer.
    pub optimizer: String,
    /// The groups of trained params.
    pub param_groups: Vec<ParamGroup>,
    /// Whether rows were read; else the largest micro-batch is the config's.
    pub rows_read: bool,
    /// Optimizer steps.
    pub total_steps: u64,
    /// Packed tokens of the largest micro-batch.
    pub max_tokens: u64,
    /// Sequences of the micro-batch that has most.
    pub max_sequences: u64,
    /// The ranks.
    pub world: World,
    /// Ranks without work, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_ranks: Option<IdleRanks>,
    /// The device of each rank.
    pub device: String,
    /// True where its memory is exact, not estimated.
    pub exact: bool,
    /// The ops that the backend lacks, which run by their decomposition.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decomposed: Vec<String>,
    /// The backend that computed the workspace of kernels in place of the assumed device's own.
    pub stand_in: Option<String>,
    /// The calibration of quantizers, if any wants statistics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibration: Option<CalibrationPlan>,
    /// The memory of each machine, unless it has a single rank.
    pub host: Option<HostMemoryPlan>,
    /// Bytes of each rank by category.
    pub memory: MemoryPlan,
    /// Frozen weights by how they are stored.
    pub weights_by_layout: BTreeMap<String, u64>,
    /// Peak of a step.
    pub step_peak_bytes: u64,
    /// Peak while loading.
    pub loading_peak_bytes: u64,
    /// Peak of the run.
    pub peak_bytes: u64,
    /// Available memory, without the program's own.
    pub available_bytes: u64,
    /// Whether the run fits.
    pub fits: bool,
    /// The products and quotients of memory and traffic.
    pub arithmetic: Arithmetic,
    /// The kernel launches of a micro-batch of this work.
    pub launches: Launches,
    /// Whether the text shows arithmetic and launches.
    #[serde(skip)]
    pub explains: bool,
    /// Bytes that a rank moves in a step, over all links.
    pub bytes_moved_per_step: u64,
    /// The work of a step: the first step of the rows, or one with sequences of the longest
    /// configured length.
    pub work: Work,
    /// The speeds for the prediction of a step's time.
    pub speeds: Speeds,
    /// The predicted time of a step.
    pub time: StepTime,
    /// Floating-point operations of the first step.
    pub step_flops: u64,
    /// The device's measured matrix-product rate in the compute dtype, operations per second;
    /// `None` for an assumed device.
    pub gemm_flops_per_sec: Option<f64>,
    /// The first step's time with all ranks at that rate.
    pub light_step_secs: Option<f64>,
}

impl PlanReport {
    /// The report of a session that was opened for `asked`.
    ///
    /// # Errors
    /// Errors of the backend during its measurement.
    pub fn of(session: &Session, config: &Config, asked: &Asked) -> Result<Self, Error> {
        let plan = &session.run.plan;
        let assumed = &asked.assumed;
        let rate = match assumed.devices {
            None => {
                let device = session.run.device.as_ref();
                Some(measure::gemm_rate(device, plan.dtypes.compute)?)
            }
            Some(_) => None,
        };
        let speeds = match rate {
            Some(rate) => measured(&session.run, asked.speeds, rate)?,
            None => Speeds::assumed(asked.speeds),
        };
        let host_bytes = memory::available_bytes();
        let (memory, host) = assumed.divide(plan, host_bytes);
        let summary = session.summary();
        let rows = session.data.as_ref().map(|data| &data.train);
        let ranks = u64::from(plan.demand.world.ranks);
        let work = match rows {
            Some(rows) => Work::of_rows(rows, &plan.program, ranks)?,
            None => Work::of_config(&config.data, ranks),
        };
        let step_flops = if rows.is_some() {
            work.flops(plan.flops)
        } else {
            0
        };
        let time = plan.step_time(work, speeds);
        let available = assumed.available(plan, host_bytes);
        let backend = &session.components.backend.identity.component;
        Ok(PlanReport {
            model: summary.model,
            packed_by: session
                .components
                .quantizers
                .packed()
                .map(|packed| packed.component().to_owned()),
            auto: None,
            plugins: summary.plugins,
            plugin_places: session.places.clone(),
            num_params: summary.num_params,
            num_trained_params: summary.num_trained_params,
            optimizer: config.optim.name.clone(),
            param_groups: plan.groups.all().to_vec(),
            rows_read: rows.is_some(),
            total_steps: summary.total_steps,
            max_tokens: plan.demand.limits.max_tokens,
            max_sequences: plan.demand.limits.max_sequences,
            world: plan.demand.world,
            idle_ranks: session.idle_ranks(config),
            device: plan.device_info.name.clone(),
            exact: plan.device_info.exact_memory,
            decomposed: plan.decomposed().into_iter().map(str::to_owned).collect(),
            stand_in: assumed.devices.map(|_| backend.clone()),
            calibration: plan.calibration.clone(),
            memory,
            weights_by_layout: plan.weights_by_layout(),
            step_peak_bytes: memory.step_peak(),
            loading_peak_bytes: memory.loading_peak(),
            peak_bytes: memory.peak(),
            available_bytes: available,
            fits: assumed.fits(plan, host_bytes),
            host,
            arithmetic: Arithmetic::of(plan),
            launches: Launches::of(&plan.program, &work),
            explains: asked.explains,
            bytes_moved_per_step: time.moved.total(),
            work,
            speeds,
            time,
            step_flops,
            gemm_flops_per_sec: rate,
            light_step_secs: rate.map(|rate| step_flops as f64 / rate / ranks as f64),
        })
    }
}
