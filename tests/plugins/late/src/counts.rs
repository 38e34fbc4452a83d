//! The calls and live objects of a device -> lines of JSON in a file.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use serde_json::json;

/// Calls of a device so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls of `record`, dropped ones included.
    pub records: u64,
    /// Calls of `wait`, dropped ones included.
    pub waits: u64,
    /// Calls of `launch`.
    pub launches: u64,
    /// Launches that `fail_launch` counts.
    pub may_fail: u64,
    /// Calls of `download`.
    pub downloads: u64,
    /// Downloads and synchronizations.
    pub host_waits: u64,
    /// Buffers that were freed while queued tasks used them.
    pub freed_in_use: u64,
    /// Tasks that used the same bytes as an earlier one although nothing orders the two.
    pub races: u64,
}

/// Objects of a device that are alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Events.
    pub events: u64,
    /// Prepared kernels.
    pub kernels: u64,
    /// Buffers.
    pub buffers: u64,
    /// Streams, the compute stream included.
    pub streams: u64,
    /// Tasks that wait on streams.
    pub tasks: u64,
}

/// When a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// After a host wait.
    HostWait,
    /// When the device is closed.
    End,
}

/// Appends a line to `path`. One write makes it whole among those of other devices and processes.
///
/// # Errors
/// Where the file cannot be written.
pub fn append(path: &Path, device: u32, at: At, counts: Counts, live: Live) -> io::Result<()> {
    let at = match at {
        At::HostWait => "host wait",
        At::End => "end",
    };
    let line = json!({
        "process": std::process::id(),
        "device": device,
        "at": at,
        "events": live.events,
        "kernels": live.kernels,
        "buffers": live.buffers,
        "streams": live.streams,
        "tasks": live.tasks,
        "records": counts.records,
        "waits": counts.waits,
        "launches": counts.launches,
        "may_fail": counts.may_fail,
        "host_waits": counts.host_waits,
        "freed_in_use": counts.freed_in_use,
        "races": counts.races,
    });
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(format!("{line}\n").as_bytes())
}
