//! Description of this machine: processor, instruction set, cores and memory.

use std::fs;

use espalier_interface::bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::memory;

/// The machine, as `run.json` and `host doctor` describe it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Operating system, as the compiler names it.
    pub os: String,
    /// Processor family, as the compiler names it.
    pub arch: String,
    /// The processor's own name, where it can be read.
    pub processor: Option<String>,
    /// The available vector instructions, which can affect results.
    pub instruction_set: Vec<String>,
    /// Threads that can run at once.
    pub cores: usize,
    /// Host memory available to this process in total: the machine's, or its control group's limit
    /// if less.
    pub memory: Bytes,
    /// Host memory that it can allocate now without swapping.
    pub available: Bytes,
}

impl Machine {
    /// Describes the machine of this process.
    pub fn detect() -> Self {
        let processor = fs::read_to_string("/proc/cpuinfo")
            .unwrap_or_default()
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
            .map(|(_, name)| name.trim().to_owned());
        Machine {
            os: std::env::consts::OS.into(),
            arch: std::env::consts::ARCH.into(),
            processor,
            instruction_set: instruction_set(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: Bytes(memory::total_bytes().unwrap_or_default()),
            available: Bytes(memory::available_bytes().unwrap_or_default()),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn instruction_set() -> Vec<String> {
    let found = [
        ("sse4.2", is_x86_feature_detected!("sse4.2")),
        ("avx", is_x86_feature_detected!("avx")),
        ("f16c", is_x86_feature_detected!("f16c")),
        ("fma", is_x86_feature_detected!("fma")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
        ("avx512vnni", is_x86_feature_detected!("avx512vnni")),
        ("avx512bf16", is_x86_feature_detected!("avx512bf16")),
    ];
    let found = found.into_iter().filter(|(_, there)| *there);
    found.map(|(name, _)| name.to_owned()).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn instruction_set() -> Vec<String> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_core() {
        let machine = Machine::detect();
        assert!(machine.cores >= 1);
        assert!(machine.available <= machine.memory);
    }
}
