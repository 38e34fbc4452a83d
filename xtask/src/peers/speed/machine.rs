//! `/proc/cpuinfo` -> the table's line about the machine.

use std::fs;

use anyhow::{Context, Result};
use serde::Serialize;

/// The machine and how much of it a run uses.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor's model, as it names itself.
    pub cpu: String,
    /// Threads of either side.
    pub threads: u64,
}

impl Machine {
    /// Reads the processor's model.
    ///
    /// # Errors
    /// Where `/proc/cpuinfo` cannot be read.
    pub fn read(threads: u64) -> Result<Self> {
        let text = fs::read_to_string("/proc/cpuinfo").context("cannot read /proc/cpuinfo")?;
        Ok(Machine {
            cpu: model_name(&text)
                .unwrap_or("an unnamed processor")
                .to_owned(),
            threads,
        })
    }
}

/// The value of the first line `model name : VALUE`.
fn model_name(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_names_itself() {
        let text = "processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9R14\n";
        assert_eq!(model_name(text), Some("AMD EPYC 9R14"));
        assert_eq!(model_name("processor: 0"), None);
    }
}
