//! How fast a rank computes and how fast bytes reach it: given, assumed or measured.

use serde::Serialize;

use super::RunPlan;
use crate::error::Result;
use crate::measure;

/// Where speeds come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Timed on the device that is here.
    Measured,
    /// Those of the assumed machine: what was not given is that of a consumer card of 2022 in a PCIe 4.0 slot of 16 lanes.
    Assumed,
}

/// What was said of speeds; what was not is measured or assumed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GivenSpeeds {
    /// 10^12 operations a second of a rank.
    pub compute_tflops: Option<f64>,
    /// 10^9 bytes a second between a device and its host, in each direction.
    pub link_gbs: Option<f64>,
    /// 10^9 bytes a second between devices of a machine.
    pub peer_gbs: Option<f64>,
    /// 10^9 bytes a second into a machine from others.
    pub network_gbs: Option<f64>,
}

/// The speeds that a step's time is foretold with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speeds {
    /// Where those come from that were not given.
    pub source: Source,
    /// Floating-point operations a second of a rank's matrix products; where they were assumed, of its whole steps.
    pub flops: f64,
    /// Bytes a second that a rank's other kernels read and write; none where they are in the rate of products already.
    pub memory: Option<f64>,
    /// Bytes a second between a device and its host, in each direction.
    pub link: f64,
    /// Bytes a second from the other devices of a machine.
    pub peers: f64,
    /// Bytes a second into a machine from the others, for all its ranks together.
    pub network: f64,
}

/// Whole steps of an RTX 4090 in bf16 under QLoRA: 61 % of its 165 TFLOP/s, worked out from the published 477 tokens/s of 70B on
/// two of them. It holds all that a step does beside its products.
///
/// # Source
/// AnswerDotAI/fsdp_qlora, benchmarks_03_2024.md.
const CONSUMER_FLOPS: f64 = 100e12;
/// What copies from pinned memory reach over PCIe 4.0 x16, of 31.5 GB/s.
const PCIE_4_X16: f64 = 25e9;
/// Ethernet of 10 Gbit/s.
const ETHERNET_10G: f64 = 1.25e9;

impl Speeds {
    /// The speeds of an assumed machine. Devices of one machine reach each other through its memory.
    pub fn assumed(given: GivenSpeeds) -> Self {
        let link = given.link_gbs.map_or(PCIE_4_X16, giga);
        Speeds {
            source: Source::Assumed,
            flops: given.compute_tflops.map_or(CONSUMER_FLOPS, |t| t * 1e12),
            memory: None,
            link,
            peers: given.peer_gbs.map_or(link, giga),
            network: given.network_gbs.map_or(ETHERNET_10G, giga),
        }
    }

    /// The speeds of the device that is here, as a rank has them where all ranks of the machine work at once. The rate of
    /// products, `gemm_rate`, and that of other kernels were timed on the threads of one rank, which are its own where
    /// the machine has a core for each rank; what comes from host memory is one bus for all. The network cannot be
    /// measured by one machine.
    ///
    /// # Errors
    /// What the backend reports.
    pub fn measured(plan: &RunPlan, given: GivenSpeeds, gemm_rate: f64) -> Result<Self> {
        let device = plan.device.as_ref();
        let ranks = f64::from(plan.demand.world.ranks_per_machine());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let (waiting, sharing) = match plan.device_info.shares_host_memory {
            true => ((ranks / cores as f64).max(1.0), ranks),
            false => (1.0, 1.0),
        };
        let flops = given
            .compute_tflops
            .map_or(gemm_rate / waiting, |t| t * 1e12);
        let link = match given.link_gbs {
            Some(gbs) => giga(gbs),
            None => measure::upload_rate(device)? / sharing,
        };
        Ok(Speeds {
            source: Source::Measured,
            flops,
            memory: Some(measure::memory_rate(device, plan.dtypes.compute)? / waiting),
            ..Speeds::assumed(GivenSpeeds {
                link_gbs: Some(link / 1e9),
                ..given
            })
        })
    }
}

fn giga(gbs: f64) -> f64 {
    gbs * 1e9
}
