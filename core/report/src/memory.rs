//! A plan's bytes by category and the measured bytes -> a bar and its legend.

use espalier_interface::bytes::Bytes;
use espalier_plan::plan::{MemoryPlan, WorldMemory};
use espalier_system::number::percent;
use serde::Serialize;

use super::record::Record;

/// Planned and observed memory.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    /// Planned bytes of a rank by category.
    pub planned: MemoryPlan,
    /// Planned peak of the run: of all ranks of the observed process, where known.
    pub planned_peak_bytes: u64,
    /// Peak bytes of the process; 0 where no step records them.
    pub observed_peak_bytes: u64,
    /// Planned bytes of ranks, processes and machines; `None` in older records.
    pub world: Option<WorldMemory>,
    /// Number of ranks, where the record has the plan of a single rank only.
    pub unplanned_ranks: Option<u64>,
    /// Whether the observed bytes are of devices with their own memory.
    #[serde(skip)]
    on_device: bool,
}

/// The bar.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    parts: Vec<BarPart>,
    /// The planned peak of loading, where that exceeds a step's.
    loading: Option<String>,
    planned: String,
    /// Bytes of each of several ranks.
    ranks: Option<String>,
    observed: Option<Observed>,
}

#[derive(Clone, Debug, Serialize)]
struct BarPart {
    name: String,
    size: String,
    share: String,
    /// Its share of the bar's length.
    width_percent: f64,
    /// Its index in the plan, which selects its colour.
    index: usize,
}

#[derive(Clone, Debug, Serialize)]
struct Observed {
    size: String,
    /// The comparison with the plan, with its leading words.
    compared: String,
    at_percent: f64,
}

impl Memory {
    /// The recorded plan and the bytes held on host and device. The plan is of the devices where
    /// they have their own memory.
    pub fn new(record: &Record, [host_bytes, device_bytes]: [u64; 2]) -> Self {
        let on_device = device_bytes > 0;
        let mut memory = Memory {
            planned: record.memory,
            planned_peak_bytes: record.memory.peak(),
            observed_peak_bytes: if on_device { device_bytes } else { host_bytes },
            world: record.world_memory,
            unplanned_ranks: Some(record.world)
                .filter(|ranks| *ranks > 1 && record.world_memory.is_none()),
            on_device,
        };
        if let Some(world) = &record.world_memory {
            memory.planned_peak_bytes = if on_device {
                memory.step_bytes()
            } else {
                world.process.needed()
            };
        }
        memory
    }

    /// The bar, as long as the greater of plan and observation.
    pub fn bar(&self) -> Option<Bar> {
        self.bar_of(self.extent())
    }

    /// The greater of the planned bytes of a step and the observed bytes.
    pub fn extent(&self) -> u64 {
        self.step_bytes().max(self.observed_peak_bytes)
    }

    /// The bar, whose full length is `longest` bytes.
    pub fn bar_of(&self, longest: u64) -> Option<Bar> {
        let step = self.step_bytes();
        if step == 0 {
            return None;
        }
        let along = |bytes: u64| 100.0 * bytes as f64 / longest as f64;
        let parts = self.parts().into_iter().filter(|(_, _, bytes)| *bytes > 0);
        let observed = self.observed_peak_bytes;
        let loading = self.loading_bytes();
        Some(Bar {
            parts: parts
                .map(|(index, name, bytes)| BarPart {
                    name,
                    size: Bytes(bytes).to_string(),
                    share: percent(bytes as f64 / step as f64),
                    width_percent: along(bytes),
                    index,
                })
                .collect(),
            loading: (loading > step).then(|| Bytes(loading).to_string()),
            planned: Bytes(step).to_string(),
            ranks: self.ranks_in_words(),
            observed: (observed > 0).then(|| Observed {
                size: Bytes(observed).to_string(),
                compared: match self.unplanned_ranks {
                    None => format!(", {}", compared(self.planned_peak_bytes, observed)),
                    Some(_) => String::new(),
                },
                at_percent: along(observed),
            }),
        })
    }

    /// Ranks of the process.
    fn ranks(&self) -> u64 {
        self.world
            .map_or(1, |world| u64::from(world.ranks_per_process.max(1)))
    }

    /// The categories of a step of the process, each with its index in a rank's plan.
    fn parts(&self) -> Vec<(usize, String, u64)> {
        let ranks = self.ranks();
        let categories = self.planned.categories().into_iter().enumerate();
        let (mut parts, mut program) = (Vec::new(), Vec::new());
        for (index, (name, bytes)) in categories {
            match name {
                // Counted once per process, and not on a device.
                "program" if self.on_device => {}
                "program" => program.push((index, name.to_owned(), bytes)),
                _ => parts.push((index, name.to_owned(), ranks * bytes)),
            }
        }
        if let Some(WorldMemory { process, .. }) = self.world.filter(|_| !self.on_device) {
            parts.extend([
                (0, "weights on the host".to_owned(), process.weights),
                (3, "trained, on the host".to_owned(), process.trained),
                (4, "saved on the host".to_owned(), process.saved_activations),
                (9, "collective calls".to_owned(), process.staging),
            ]);
        }
        parts.extend(program);
        parts
    }

    fn step_bytes(&self) -> u64 {
        self.parts().iter().map(|(_, _, bytes)| bytes).sum()
    }

    fn loading_bytes(&self) -> u64 {
        match self.world {
            Some(world) => world.process.loading_peak,
            None => self.planned.loading_peak(),
        }
    }

    fn ranks_in_words(&self) -> Option<String> {
        if let Some(ranks) = self.unplanned_ranks {
            return Some(format!(
                "That is the plan of one of {ranks} ranks: this record has none of all together."
            ));
        }
        let world = self.world.filter(|world| world.ranks_per_machine() > 1)?;
        let rank = Bytes(world.rank_bytes);
        let own = match world.ranks_per_process {
            1 => format!("That is one process, its rank {rank} of it"),
            ranks => format!("Each of the {ranks} ranks of the process takes {rank} of it"),
        };
        let machine = Bytes(world.machine.needed());
        Some(match world.processes_per_machine {
            1 => format!("{own}."),
            processes => format!("{own}; the machine's {processes} processes take {machine}."),
        })
    }
}

/// The deviation of an observation from the plan.
fn compared(planned: u64, observed: u64) -> String {
    let off = observed as f64 / planned.max(1) as f64 - 1.0;
    let side = if off < 0.0 { "below" } else { "above" };
    format!("{} {side} the plan", percent(off.abs()))
}

#[cfg(test)]
mod tests;
