//! A plan's bytes by category and what was held -> a bar and its legend.

use serde::Serialize;

use super::number::percent;
use crate::bytes::Bytes;
use crate::plan::MemoryPlan;

/// Memory as planned and as observed.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    /// Planned bytes by category.
    pub planned: MemoryPlan,
    /// Planned peak of the run.
    pub planned_peak_bytes: u64,
    /// Most bytes held; 0 where no step says.
    pub observed_peak_bytes: u64,
}

/// The bar.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    parts: Vec<BarPart>,
    /// The planned peak of loading, where that exceeds a step's.
    loading: Option<String>,
    planned: String,
    observed: Option<Observed>,
}

#[derive(Clone, Debug, Serialize)]
struct BarPart {
    name: &'static str,
    size: String,
    share: String,
    /// Its part of the bar's length.
    width_percent: f64,
    /// Its place in the plan's order, which gives its colour.
    index: usize,
}

#[derive(Clone, Debug, Serialize)]
struct Observed {
    size: String,
    compared: String,
    at_percent: f64,
}

impl Memory {
    /// The plan beside the bytes held on host and device: the plan is of the device where it has
    /// memory of its own.
    pub fn new(planned: MemoryPlan, [host_bytes, device_bytes]: [u64; 2]) -> Self {
        Memory {
            planned,
            planned_peak_bytes: planned.peak(),
            observed_peak_bytes: if device_bytes > 0 {
                device_bytes
            } else {
                host_bytes
            },
        }
    }

    /// The bar, as long as the greater of plan and observation.
    pub fn bar(&self) -> Option<Bar> {
        self.bar_of(self.extent())
    }

    /// The greater of what a step was planned to take and of what was held, in bytes.
    pub fn extent(&self) -> u64 {
        self.planned.step_peak().max(self.observed_peak_bytes)
    }

    /// The bar, whose whole length stands for `longest` bytes.
    pub fn bar_of(&self, longest: u64) -> Option<Bar> {
        let step = self.planned.step_peak();
        if step == 0 {
            return None;
        }
        let along = |bytes: u64| 100.0 * bytes as f64 / longest as f64;
        let parts = self.planned.categories().into_iter().enumerate();
        let parts = parts.filter(|(_, (_, bytes))| *bytes > 0);
        let observed = self.observed_peak_bytes;
        Some(Bar {
            parts: parts
                .map(|(index, (name, bytes))| BarPart {
                    name,
                    size: Bytes(bytes).to_string(),
                    share: percent(bytes as f64 / step as f64),
                    width_percent: along(bytes),
                    index,
                })
                .collect(),
            loading: (self.planned.loading_peak() > step)
                .then(|| Bytes(self.planned.loading_peak()).to_string()),
            planned: Bytes(step).to_string(),
            observed: (observed > 0).then(|| Observed {
                size: Bytes(observed).to_string(),
                compared: compared(self.planned_peak_bytes, observed),
                at_percent: along(observed),
            }),
        })
    }
}

/// How far an observation lies from the plan.
fn compared(planned: u64, observed: u64) -> String {
    let off = observed as f64 / planned.max(1) as f64 - 1.0;
    let side = if off < 0.0 { "below" } else { "above" };
    format!("{} {side} the plan", percent(off.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_holds_plan_and_observation() {
        let planned = MemoryPlan {
            weights: 60,
            arena: 20,
            ..MemoryPlan::default()
        };
        let bar = Memory::new(planned, [100, 0]).bar().expect("a bar");
        let widths: Vec<f64> = bar.parts.iter().map(|part| part.width_percent).collect();
        assert_eq!(widths, [60.0, 20.0]);
        let observed = bar.observed.expect("an observation");
        assert_eq!(
            (observed.at_percent, observed.compared.as_str()),
            (100.0, "25.0 % above the plan")
        );
        assert!(Memory::new(MemoryPlan::default(), [0, 0]).bar().is_none());
    }
}
