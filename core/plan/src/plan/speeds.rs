//! How fast a rank computes and how fast bytes reach it: given, assumed or measured.

use serde::Serialize;

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

/// The speeds that a step's time is predicted with.
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
}

fn giga(gbs: f64) -> f64 {
    gbs * 1e9
}
