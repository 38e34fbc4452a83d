//! Assumed machines, such as `2x24GiB` devices and `64GiB` of host memory, to plan for in place of
//! this one.

use std::str::FromStr;

use espalier_interface::DeviceInfo;
use espalier_interface::bytes::Bytes;
use espalier_system::failure::UsageError;
use espalier_system::world::World;

use super::{HostMemoryPlan, MemoryPlan, RunPlan};
use crate::Error;

/// Most ranks of an assumed world.
const MOST_RANKS: u32 = 1 << 16;

/// Devices with their own memory: `24GiB`, or `2x24GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Devices {
    /// Number of devices.
    pub count: u32,
    /// Memory of each device.
    pub memory: Bytes,
}

impl FromStr for Devices {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (count, memory) = match text.split_once('x') {
            None => (1, text),
            Some((count, memory)) => match count.trim().parse() {
                Ok(count) if (1..=MOST_RANKS).contains(&count) => (count, memory),
                _ => return Err(format!("expected a number of devices, found `{count}`")),
            },
        };
        Ok(Devices {
            count,
            memory: memory.trim().parse()?,
        })
    }
}

/// Assumptions about the machines; unset values are those of this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assumed {
    /// Devices of each machine, with their own memory and one rank each.
    pub devices: Option<Devices>,
    /// Host memory of each machine available to a run.
    pub host: Option<Bytes>,
    /// Number of machines, with one process each.
    pub machines: Option<u32>,
    /// The rows that the head takes at once.
    pub head_rows: HeadRows,
}

/// The rows of hidden states that the head takes at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeadRows {
    /// A chunk, as in every run.
    #[default]
    Chunk,
    /// All of a micro-batch, to compare with programs whose logits all exist at once.
    All,
}

impl Assumed {
    /// The world of the assumed machines; `here` gives the unset values.
    ///
    /// # Errors
    /// [`Error::Usage`] for more ranks than a world can have, and for different numbers of ranks
    /// and assumed devices.
    pub fn world(&self, here: World) -> Result<World, Error> {
        if self.devices.is_none() && self.machines.is_none() {
            return Ok(here);
        }
        let processes = self.machines.unwrap_or(1);
        let asked = here.ranks_per_process();
        let ranks = self.devices.map_or(asked, |devices| devices.count);
        if asked > 1 && asked != ranks {
            return Err(Error::Usage(UsageError {
                message: format!(
                    "{ranks} devices are assumed, and {asked} ranks are asked for: each device has a rank"
                ),
                next_step: format!(
                    "leave --ranks out, or assume {asked} devices (--assume {asked}xSIZE)"
                ),
            }));
        }
        let all = ranks
            .checked_mul(processes)
            .filter(|&all| all <= MOST_RANKS);
        let Some(ranks) = all else {
            return Err(Error::Usage(UsageError {
                message: format!(
                    "{processes} machines of {ranks} ranks are more than {MOST_RANKS} ranks"
                ),
                next_step:
                    "assume fewer machines (--machines), or fewer devices on each (--assume)"
                        .to_owned(),
            }));
        };
        Ok(World {
            ranks,
            processes,
            processes_per_machine: 1,
            process: 0,
        })
    }

    /// Replaces in `info`, which describes the real device, what is assumed.
    pub fn replace(&self, info: &mut DeviceInfo) {
        if self.head_rows == HeadRows::All {
            info.head_chunk_bytes = Some(u64::MAX);
        }
        let Some(Devices { memory, .. }) = self.devices else {
            return;
        };
        info.name = format!("an assumed device of {memory}");
        info.memory_bytes = memory.0;
        info.free_bytes = memory.0;
        info.shares_host_memory = false;
        info.exact_memory = false;
    }

    /// Memory available to a rank of the plan: its device's, or its machine's where devices share
    /// it. `host` is the available host memory of this machine, where known.
    pub fn available(&self, plan: &RunPlan, host: Option<u64>) -> u64 {
        match self.host {
            Some(assumed) if plan.device_info.shares_host_memory => assumed.0,
            _ => plan.available(host),
        }
    }

    /// A rank's memory, and the memory of its machine unless one rank has all of it. `host` as in
    /// [`Assumed::available`].
    pub fn divide(
        &self,
        plan: &RunPlan,
        host: Option<u64>,
    ) -> (MemoryPlan, Option<HostMemoryPlan>) {
        let shares = plan.device_info.shares_host_memory;
        if shares && plan.is_alone() {
            return (plan.memory, None);
        }
        let rank = MemoryPlan {
            program: 0,
            loading: 0,
            calibration: 0,
            ..plan.memory
        };
        (rank, Some(self.machine(plan, host)))
    }

    /// The planned memory of each machine of a plan, with what is available of it. `host` as in
    /// [`Assumed::available`].
    pub fn machine(&self, plan: &RunPlan, host: Option<u64>) -> HostMemoryPlan {
        let mut planned = plan.host_memory();
        planned.available = match (self.host, plan.device_info.shares_host_memory) {
            (Some(assumed), _) => Some(assumed.0),
            // `available` does not count what the programs hold already.
            (None, true) => Some(plan.available(host).saturating_add(planned.program)),
            (None, false) => None,
        };
        planned
    }

    /// Whether a plan fits each device and each machine. `host` as in [`Assumed::available`].
    pub fn fits(&self, plan: &RunPlan, host: Option<u64>) -> bool {
        let (rank, machine) = self.divide(plan, host);
        let on_device = if plan.device_info.shares_host_memory && self.host.is_some() {
            true
        } else {
            rank.on_device() <= plan.device_info.free_bytes
        };
        on_device
            && match machine {
                Some(machine) => machine.fits(),
                None => plan.needed() <= self.available(plan, host),
            }
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
    fn a_rank_for_each_device_and_a_process_for_each_machine() {
        let assumed = Assumed {
            devices: Some("2x24GiB".parse().expect("devices")),
            machines: Some(3),
            ..Assumed::default()
        };
        let world = assumed.world(World::ONE).expect("six ranks");
        assert_eq!((world.ranks, world.processes), (6, 3));
        assert_eq!((world.ranks_per_machine(), world.machines()), (2, 3));
        assert_eq!(Assumed::default().world(world).expect("as it is"), world);
        let many = Assumed {
            machines: Some(u32::MAX),
            ..assumed
        };
        let error = many.world(World::ONE).expect_err("too many");
        assert!(error.to_string().contains("machines of 2 ranks"), "{error}");
        let error = assumed.world(World::threads(4)).expect_err("two for four");
        assert!(
            error.to_string().contains("4 ranks are asked for"),
            "{error}"
        );
    }
}
