//! Tried plans -> the choice: it fits, no fitting plan is faster, and none as fast is simpler.

use std::fmt;

use espalier_compile::params::Training;
use espalier_plan::plan::{Assumed, RunPlan, Speeds, StepTime, Work};
use serde::Serialize;

use super::choice::Choice;
use super::guide_stage::GuideStage;
use crate::bytes::Bytes;

/// Times with a smaller relative difference count as equal: the prediction is less accurate.
const SAME: f64 = 0.005;

/// Share of the available memory by which a plan that nearly fits exceeds it, at most.
const NEARLY: f64 = 0.25;

/// A search keeps 1 / `RESERVE` of a device's estimated memory free: the accuracy of plans.
const RESERVE: u64 = 20;

/// Needed and available memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Room {
    /// Bytes needed.
    pub needed: u64,
    /// Available bytes; `None` where unknown.
    pub available: Option<u64>,
}

/// A tried plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// Its choice.
    pub choice: Choice,
    /// Its step of the guide.
    pub step: GuideStage,
    /// Memory of each device, less a reserve where it is an estimate; `None` for devices that use
    /// host memory.
    pub device: Option<Room>,
    /// Host memory of each machine.
    pub host: Room,
    /// The time of a step.
    pub time: StepTime,
}

impl Room {
    fn fits(&self) -> bool {
        self.available.is_none_or(|there| self.needed <= there)
    }

    /// Ratio of needed to available memory.
    fn strain(&self) -> f64 {
        let there = self
            .available
            .map_or(f64::INFINITY, |there| there.max(1) as f64);
        self.needed as f64 / there
    }
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Bytes(self.needed))?;
        match self.available {
            Some(there) => write!(f, " of {}", Bytes(there)),
            None => Ok(()),
        }
    }
}

impl Tried {
    /// The present plan on these machines. `host` is the available host memory of this one, where
    /// known.
    pub(super) fn new(
        choice: Choice,
        plan: &RunPlan,
        (assumed, host): (&Assumed, Option<u64>),
        work: Work,
        speeds: Speeds,
    ) -> Self {
        let (host, info) = (assumed.machine(plan, host), &plan.device_info);
        let reserve = if info.exact_memory {
            0
        } else {
            info.free_bytes / RESERVE
        };
        let device = Room {
            needed: plan.memory.on_device(),
            available: Some(info.free_bytes - reserve),
        };
        Tried {
            step: GuideStage::of(&choice),
            choice,
            device: (!info.shares_host_memory).then_some(device),
            host: Room {
                needed: host.needed(),
                available: host.available,
            },
            time: plan.step_time(work, speeds),
        }
    }

    /// Whether it fits in memory.
    pub fn fits(&self) -> bool {
        self.device.is_none_or(|room| room.fits()) && self.host.fits()
    }

    /// The highest ratio of needed to available memory.
    fn strain(&self) -> f64 {
        let device = self.device.map_or(0.0, |room| room.strain());
        device.max(self.host.strain())
    }

    /// Whether it fits, or nearly: other options of the same step may make it fit.
    pub(super) fn nearly_fits(&self) -> bool {
        self.strain() <= 1.0 + NEARLY
    }

    /// The insufficient memory, in words.
    pub(super) fn lacks(&self) -> Option<String> {
        match self.device {
            Some(room) if !room.fits() => Some(format!("a device needs {room}")),
            _ if !self.host.fits() => Some(format!("the host needs {}", self.host)),
            _ => None,
        }
    }

    /// Order of equally fast plans by simplicity: the step of the guide, then the bytes.
    fn simplicity(&self) -> impl Ord + use<> {
        let device = self.device.map_or(0, |room| room.needed);
        let moved = self.time.moved.total();
        (self.step, moved, self.host.needed, device)
    }
}

/// The fastest plan that fits; if none does, the one with the smallest excess.
pub(super) fn best<'a>(tried: impl IntoIterator<Item = &'a Tried>) -> Option<&'a Tried> {
    let tried: Vec<&Tried> = tried.into_iter().collect();
    let fitting = tried.iter().copied().filter(|one| one.fits());
    let fastest = fitting.clone().map(|one| one.time.secs).reduce(f64::min);
    match fastest {
        Some(secs) => fitting
            .filter(|one| one.time.secs <= secs * (1.0 + SAME))
            .min_by_key(|one| one.simplicity()),
        None => tried
            .into_iter()
            .min_by(|one, other| one.strain().total_cmp(&other.strain())),
    }
}

/// Advice where no plan fits.
pub(super) fn advice(nearest: &Tried, training: Training) -> String {
    let lacks = nearest.lacks().unwrap_or_default();
    let way_out = match training {
        Training::Full => "train an adapter on packed weights (--plugins nf4,lora)",
        Training::Part => {
            "train fewer weights (model.train_only), or pack the others (--plugins nf4)"
        }
        Training::Adapter | Training::Nothing => {
            "shorten data.max_seq_len, pack more weights, or add ranks or memory"
        }
    };
    format!("nothing fits; of what comes nearest, {lacks}: {way_out}")
}

#[cfg(test)]
mod tests;
