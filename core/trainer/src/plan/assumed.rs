//! `2x24GiB` and `64GiB` -> a machine that is planned for in place of this one.

use std::str::FromStr;

use espalier_interface::DeviceInfo;
use serde::Serialize;

use super::{MemoryPlan, RunPlan};
use crate::Error;
use crate::bytes::Bytes;

/// Devices with memory of their own: `24GiB`, or `2x24GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Devices {
    /// How many.
    pub count: u64,
    /// Memory of each.
    pub memory: Bytes,
}

impl FromStr for Devices {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (count, memory) = match text.split_once('x') {
            None => (1, text),
            Some((count, memory)) => match count.trim().parse() {
                Ok(count) if count > 0 => (count, memory),
                _ => return Err(format!("expected a number of devices, found `{count}`")),
            },
        };
        Ok(Devices {
            count,
            memory: memory.trim().parse()?,
        })
    }
}

/// What is assumed of the machine; what is left out is this machine's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assumed {
    /// A device with memory of its own.
    pub device: Option<Bytes>,
    /// Host memory that a run can have.
    pub host: Option<Bytes>,
}

/// What a run takes of the host beside a device with memory of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HostMemory {
    /// The program itself.
    pub program: u64,
    /// While loading: one weight in f32, the encoder's workspace, and the weight packed on its way to the device.
    pub loading: u64,
    /// What is assumed to be there; unset where nothing was said.
    pub available: Option<u64>,
}

impl Assumed {
    /// Assumes `devices` and `host` memory.
    ///
    /// # Errors
    /// [`Error::Usage`] for more than one device.
    pub fn new(devices: Option<Devices>, host: Option<Bytes>) -> Result<Self, Error> {
        match devices {
            Some(Devices { count, memory }) if count > 1 => Err(Error::Usage {
                message: format!(
                    "{count} devices of {memory} are assumed, and this version plans for one: it \
                     cannot divide a model among devices yet"
                ),
                next_step: format!(
                    "plan for one of them (--assume {}), or for one with the memory of all",
                    memory.to_string().replace(' ', "")
                ),
            }),
            devices => Ok(Assumed {
                device: devices.map(|devices| devices.memory),
                host,
            }),
        }
    }

    /// Puts what is assumed into the place of what `info` says of the real device, the stand-in.
    pub fn replace(&self, info: &mut DeviceInfo) {
        let Some(memory) = self.device else {
            return;
        };
        info.name = format!("an assumed device of {memory}");
        info.memory_bytes = memory.0;
        info.free_bytes = memory.0;
        info.shares_host_memory = false;
        info.exact_memory = false;
    }

    /// Memory that the plan's device can have.
    pub fn available(&self, plan: &RunPlan) -> u64 {
        match self.host {
            Some(host) if plan.device_info.shares_host_memory => host.0,
            _ => plan.available(),
        }
    }

    /// The device's part of a plan's memory and, where a device of its own is assumed, the host's.
    pub fn divide(&self, plan: &RunPlan) -> (MemoryPlan, Option<HostMemory>) {
        if self.device.is_none() {
            return (plan.memory, None);
        }
        let device = MemoryPlan {
            program: 0,
            loading: 0,
            ..plan.memory
        };
        let packed = plan
            .quantizers
            .keys()
            .map(|&index| plan.params[index].bytes());
        let host = HostMemory {
            program: plan.memory.program,
            loading: plan.memory.loading + packed.max().unwrap_or(0),
            available: self.host.map(|host| host.0),
        };
        (device, Some(host))
    }
}

impl HostMemory {
    /// Bytes in all.
    pub fn needed(&self) -> u64 {
        self.program + self.loading
    }

    /// Whether it is there, as far as that was said.
    pub fn fits(&self) -> bool {
        self.available
            .is_none_or(|available| self.needed() <= available)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_with_and_without_a_number() {
        let of = |text: &str| text.parse::<Devices>();
        let one = Devices {
            count: 1,
            memory: Bytes(24 << 30),
        };
        assert_eq!(of("24GiB"), Ok(one));
        assert_eq!(of("2 x 24 GiB"), Ok(Devices { count: 2, ..one }));
        assert!(of("0x24GiB").expect_err("none").contains("`0`"));
        assert!(of("2x24GB").expect_err("decimal").contains("GiB"));
    }

    #[test]
    fn more_devices_than_one_are_refused() {
        let devices = "2x24GiB".parse().expect("devices");
        let error = Assumed::new(Some(devices), None).expect_err("two");
        assert!(error.to_string().contains("2 devices"), "{error}");
    }
}
