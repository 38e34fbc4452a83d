//! File calls of the program, logged by the fault library -> bytes read from weight files.

use std::fs;
use std::path::Path;
use std::process::Command;

use espalier_torture::built::faults;

/// `command` with every call on a file below `prefix` logged to `log`.
pub fn watched<'a>(command: &'a mut Command, prefix: &Path, log: &Path) -> &'a mut Command {
    command
        .env("LD_PRELOAD", faults())
        .env("FAULT_PREFIX", prefix)
        .env("FAULT_LOG", log)
}

/// The end of the range that a positional read covers.
pub fn read_end(call: &str) -> Option<u64> {
    let (_, end) = call.strip_prefix("pread64 ")?.split_once('@')?;
    end.parse().ok()
}

/// Where the header of a safetensors file ends.
pub fn header_end(path: &Path) -> u64 {
    let bytes = fs::read(path).expect("weights");
    8 + u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}
