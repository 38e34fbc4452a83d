//! A plan's device -> its rates of computing and copying.

use espalier_engine::executor::PreparedRun;
use espalier_engine::measure;
use espalier_plan::plan::{GivenSpeeds, KernelRates, Source, Speeds};

use crate::error::Result;

/// The speeds of this machine's device per rank, with all ranks of the machine active. The rates of
/// products, `gemm_rate`, and of other kernels are timed on the threads of one rank. These are not
/// shared where the machine has a core for each rank. The bus to host memory is shared by all
/// ranks. One machine cannot measure the network.
///
/// # Errors
/// What the backend reports.
pub(super) fn measured(run: &PreparedRun, given: GivenSpeeds, gemm_rate: f64) -> Result<Speeds> {
    let (plan, device) = (&run.plan, run.device.as_ref());
    let ranks = f64::from(plan.demand.world.ranks_per_machine());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (waiting, sharing) = if plan.device_info.shares_host_memory {
        ((ranks / cores as f64).max(1.0), ranks)
    } else {
        (1.0, 1.0)
    };
    let flops = given
        .compute_tflops
        .map_or(gemm_rate / waiting, |t| t * 1e12);
    let link = match given.link_gbs {
        Some(gbs) => gbs * 1e9,
        None => measure::upload_rate(device)? / sharing,
    };
    let alone = measure::kernel_rates(device, plan, gemm_rate)?;
    Ok(Speeds {
        source: Source::Measured,
        flops,
        kernels: Some(KernelRates {
            memory: alone.memory / waiting,
            elementwise: alone.elementwise / waiting,
            decoding: alone.decoding / waiting,
        }),
        ..Speeds::assumed(GivenSpeeds {
            link_gbs: Some(link / 1e9),
            ..given
        })
    })
}
