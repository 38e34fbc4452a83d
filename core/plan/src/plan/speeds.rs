//! Rates of a rank's computing and of its links: given, assumed or measured.

use serde::Serialize;

/// Origin of the speeds that were not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Measured on this device.
    Measured,
    /// Typical of an assumed machine: a consumer GPU of 2022 in a PCIe 4.0 x16 slot.
    Assumed,
}

/// Speeds that the user gave; the others are measured or assumed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GivenSpeeds {
    /// Rate of a rank in TFLOP/s.
    pub compute_tflops: Option<f64>,
    /// Rate between a device and its host in GB/s, in each direction.
    pub link_gbs: Option<f64>,
    /// Rate between devices of a machine in GB/s.
    pub peer_gbs: Option<f64>,
    /// Rate into a machine from other machines in GB/s.
    pub network_gbs: Option<f64>,
}

/// Bytes per second that a rank's kernels read and write, those of matrix products aside.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct KernelRates {
    /// Of kernels that do next to nothing per byte: dense weights and gradients.
    pub memory: f64,
    /// Of kernels that compute with each value: activations and updates.
    pub elementwise: f64,
    /// Of products as they decode a packed weight.
    pub decoding: f64,
}

/// The speeds from which a step's time is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speeds {
    /// Origin of the speeds that were not given.
    pub source: Source,
    /// Floating-point operations per second of a rank's matrix products; of its whole steps where
    /// the rate is assumed.
    pub flops: f64,
    /// Rates of a rank's other kernels; none where `flops` covers whole steps.
    #[serde(flatten)]
    pub kernels: Option<KernelRates>,
    /// Bytes per second between a device and its host, in each direction.
    pub link: f64,
    /// Bytes per second from the other devices of a machine.
    pub peers: f64,
    /// Bytes per second into a machine from the others, for all its ranks together.
    pub network: f64,
}

/// Rate of whole steps of an RTX 4090 in bf16 under QLoRA: 61 % of its 165 TFLOP/s. It is derived
/// from the published 477 tokens/s of a 70B model on two of them. It therefore includes the other
/// work of a step besides matrix products.
///
/// # Source
/// AnswerDotAI/fsdp_qlora, benchmarks_03_2024.md.
const CONSUMER_FLOPS: f64 = 100e12;
/// Rate that copies from pinned memory reach over PCIe 4.0 x16, in bytes per second; the nominal
/// rate is 31.5 GB/s.
const PCIE_4_X16: f64 = 25e9;
/// 10 Gbit/s Ethernet in bytes per second.
const ETHERNET_10G: f64 = 1.25e9;

impl Speeds {
    /// The speeds of an assumed machine, whose devices reach each other through host memory.
    pub fn assumed(given: GivenSpeeds) -> Self {
        let link = given.link_gbs.map_or(PCIE_4_X16, giga);
        Speeds {
            source: Source::Assumed,
            flops: given.compute_tflops.map_or(CONSUMER_FLOPS, |t| t * 1e12),
            kernels: None,
            link,
            peers: given.peer_gbs.map_or(link, giga),
            network: given.network_gbs.map_or(ETHERNET_10G, giga),
        }
    }
}

fn giga(gbs: f64) -> f64 {
    gbs * 1e9
}
