//! The operating system's data on this machine: its processor, its memory and the limits on it.

use std::fs::read_to_string;

/// Memory of the machine, or of the control group where that is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineMemory {
    /// Total memory.
    pub total_bytes: u64,
    /// Memory that can be taken now without swapping.
    pub free_bytes: u64,
}

/// The machine's memory; zeros where the system reports none.
pub fn memory() -> MachineMemory {
    let info = read_to_string("/proc/meminfo").unwrap_or_default();
    let whole = MachineMemory {
        total_bytes: 1024 * field(&info, "MemTotal:").unwrap_or(0),
        free_bytes: 1024 * field(&info, "MemAvailable:").unwrap_or(0),
    };
    let group = |name: &str| read_to_string(format!("/sys/fs/cgroup/{name}")).unwrap_or_default();
    limited(
        whole,
        &group("memory.max"),
        &group("memory.current"),
        &group("memory.stat"),
    )
}

/// `whole` under a control group's limit, given its files; cache that can be dropped counts as
/// free.
fn limited(whole: MachineMemory, max: &str, current: &str, stat: &str) -> MachineMemory {
    let (Ok(max), Ok(current)) = (max.trim().parse::<u64>(), current.trim().parse::<u64>()) else {
        return whole;
    };
    let used = current.saturating_sub(field(stat, "inactive_file").unwrap_or(0));
    MachineMemory {
        total_bytes: whole.total_bytes.min(max),
        free_bytes: whole.free_bytes.min(max.saturating_sub(used)),
    }
}

/// The number after `name` at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text
        .lines()
        .find(|line| line.split_whitespace().next() == Some(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// The processor's name.
pub fn processor() -> String {
    let info = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or("an unnamed processor", |(_, name)| name.trim())
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_group_lowers_both_numbers() {
        let whole = MachineMemory {
            total_bytes: 1000,
            free_bytes: 800,
        };
        let found = limited(whole, "500\n", "400\n", "anon 300\ninactive_file 100\n");
        assert_eq!(
            found,
            MachineMemory {
                total_bytes: 500,
                free_bytes: 200
            }
        );
        assert_eq!(limited(whole, "max\n", "400\n", ""), whole);
    }

    #[test]
    fn this_machine_has_memory() {
        let found = memory();
        assert!(found.free_bytes > 0 && found.free_bytes <= found.total_bytes);
    }
}
