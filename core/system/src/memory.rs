//! Memory of this process and of the machine, as reported by the operating system.

mod error;
mod meter;

use std::fs;

pub use error::OutOfMemory;
pub use meter::Meter;

/// Bytes of anonymous and shared memory that this process holds now; 0 where unknown.
///
/// File pages are left out: they can be dropped, and a plan does not count them.
pub fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    ["RssAnon:", "RssShmem:"]
        .into_iter()
        .filter_map(|key| field(&status, key))
        .sum()
}

/// The memory limit of this process in bytes: the machine's memory, or its control group's limit if
/// less.
pub fn total_bytes() -> Option<u64> {
    let machine = field(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")?;
    Some(machine.min(group_limit().map_or(u64::MAX, |(limit, _)| limit)))
}

/// Bytes that this process can allocate now without swapping: the machine's free memory, or the
/// rest under its control group or `ulimit -v` if less.
pub fn available_bytes() -> Option<u64> {
    let machine = field(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")?;
    let group = group_limit().map(|(limit, used)| limit.saturating_sub(used));
    let limit = address_space_limit().unwrap_or(u64::MAX);
    Some(machine.min(group.unwrap_or(u64::MAX)).min(limit))
}

/// A `/proc` field in kB as bytes.
fn field(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(
        line.trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<u64>()
            .ok()?
            * 1024,
    )
}

/// Limit and use of this process's control group (version 2, then 1), where a limit is set.
/// Droppable file pages do not count as used.
fn group_limit() -> Option<(u64, u64)> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .unwrap_or("/");
    let own = format!("/sys/fs/cgroup{}", own.trim_end_matches('/'));
    [
        (own.as_str(), "memory.max", "memory.current"),
        ("/sys/fs/cgroup", "memory.max", "memory.current"),
        (
            "/sys/fs/cgroup/memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
        ),
    ]
    .into_iter()
    .find_map(|(folder, limit, used)| {
        let read = |name: &str| fs::read_to_string(format!("{folder}/{name}")).ok();
        // `max` does not parse: there is no limit.
        let limit = read(limit)?.trim().parse::<u64>().ok()?;
        let used = read(used)?.trim().parse::<u64>().ok()?;
        let stat = read("memory.stat").unwrap_or_default();
        let droppable = stat
            .lines()
            .find_map(|line| line.strip_prefix("inactive_file ")?.parse::<u64>().ok())
            .unwrap_or(0);
        Some((limit, used.saturating_sub(droppable)))
    })
}

/// The rest under `ulimit -v`, where it is set.
fn address_space_limit() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max address space"))?;
    let limit = line.split_whitespace().next()?.parse::<u64>().ok()?;
    let used = field(&fs::read_to_string("/proc/self/status").ok()?, "VmSize:")?;
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_bytes() {
        assert_eq!(
            field("VmSize:\t  12 kB\nRssAnon:\t    1024 kB\n", "RssAnon:"),
            Some(1 << 20)
        );
        assert_eq!(field("RssAnon:\tmany kB\n", "RssAnon:"), None);
    }

    #[test]
    fn resident_bytes_grow_with_allocated_memory() {
        let before = resident_bytes();
        // Otherwise the compiler would remove the allocation.
        let held = std::hint::black_box(vec![1u8; 64 << 20]);
        let grown = resident_bytes() - before;
        assert!(grown >= 60 << 20, "{grown} bytes more for {}", held.len());
        assert!(available_bytes().is_some_and(|bytes| bytes > 0));
    }
}
