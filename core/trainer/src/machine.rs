//! What this machine is: processor, instruction set, cores and memory.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;

/// The machine, as `run.json` and `host doctor` describe it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Operating system, as the compiler names it.
    pub os: String,
    /// Processor family, as the compiler names it.
    pub arch: String,
    /// The processor's own name, where it can be read.
    pub processor: Option<String>,
    /// The vector instructions found, which results may depend on.
    pub instruction_set: Vec<String>,
    /// Threads that can run at once.
    pub cores: usize,
    /// Host memory that this process may use: the machine's, or its control group's if less.
    pub memory: Bytes,
    /// Host memory that it could get now without swapping.
    pub available: Bytes,
}

impl Machine {
    /// Looks at the machine that this runs on.
    pub fn detect() -> Self {
        let info = read("/proc/meminfo");
        let total = meminfo(&info, "MemTotal").unwrap_or_default();
        let available = meminfo(&info, "MemAvailable").unwrap_or_default();
        let (memory, available) = match group_limit() {
            Some((limit, used)) => (total.min(limit), available.min(limit.saturating_sub(used))),
            None => (total, available),
        };
        let processor = read("/proc/cpuinfo")
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
            .map(|(_, name)| name.trim().to_owned());
        Machine {
            os: std::env::consts::OS.into(),
            arch: std::env::consts::ARCH.into(),
            processor,
            instruction_set: instruction_set(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: Bytes(memory),
            available: Bytes(available),
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

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// A line of `/proc/meminfo`, `MemTotal:  16384 kB`, in bytes.
fn meminfo(info: &str, key: &str) -> Option<u64> {
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The control group's memory limit and what is used of it, page cache that can be dropped not
/// counted, in bytes; none where there is no limit.
fn group_limit() -> Option<(u64, u64)> {
    for (limit, used, stat) in [
        (
            "/sys/fs/cgroup/memory.max",
            "/sys/fs/cgroup/memory.current",
            "/sys/fs/cgroup/memory.stat",
        ),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
            "/sys/fs/cgroup/memory/memory.stat",
        ),
    ] {
        // "max" where there is no limit.
        if let Ok(limit) = read(limit).trim().parse::<u64>() {
            let used = read(used).trim().parse::<u64>().unwrap_or(0);
            let cached = read(stat)
                .lines()
                .find_map(|line| line.strip_prefix("inactive_file ")?.parse().ok())
                .unwrap_or(0);
            return Some((limit, used.saturating_sub(cached)));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read_in_kib() {
        let info = "MemTotal:       16384 kB\nMemAvailable:    1024 kB\nMemTotalX: 3 kB\n";
        assert_eq!(meminfo(info, "MemTotal"), Some(16384 * 1024));
        assert_eq!(meminfo(info, "MemAvailable"), Some(1024 * 1024));
        assert_eq!(meminfo(info, "Mem"), None);
    }

    #[test]
    fn this_machine_has_a_core() {
        let machine = Machine::detect();
        assert!(machine.cores >= 1);
        assert!(machine.available <= machine.memory);
    }
}
