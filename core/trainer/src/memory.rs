//! What the operating system says of this process's memory and of the machine's.

use std::fs;

/// Bytes of anonymous and shared memory that this process holds now; 0 where the system does not say.
///
/// Pages of files are left out: they can be dropped, and a plan does not count them.
pub fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    ["RssAnon:", "RssShmem:"]
        .into_iter()
        .filter_map(|key| field(&status, key))
        .sum()
}

/// Bytes that a new process could take without swapping: the machine's, or the control group's where that is less.
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

/// Limit and use of this process's control group (version 2), where one is set.
fn group_limit() -> Option<(u64, u64)> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let folder = format!("/sys/fs/cgroup{}", path.trim_end_matches('/'));
    let number = |name: &str| {
        fs::read_to_string(format!("{folder}/{name}"))
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    // A limit of `max` does not parse: there is none.
    Some((number("memory.max")?, number("memory.current")?))
}

/// What `ulimit -v` leaves, where it is set.
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
    fn a_process_sees_what_it_holds() {
        let before = resident_bytes();
        // Else the compiler sees that only the length is used.
        let held = std::hint::black_box(vec![1u8; 64 << 20]);
        let grown = resident_bytes() - before;
        assert!(grown >= 60 << 20, "{grown} bytes more for {}", held.len());
        assert!(available_bytes().is_some_and(|bytes| bytes > 0));
    }
}
