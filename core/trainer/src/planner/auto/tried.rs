//! Plans that were tried -> the one to take: it fits, nothing that fits is faster, and nothing as
//! fast is simpler.

use std::fmt;

use espalier_plan::plan::{Assumed, RunPlan, Speeds, StepTime, Work};
use serde::Serialize;

use super::choice::Choice;
use super::step::Step;
use crate::bytes::Bytes;

/// Times that differ by less than this part are the same: the arithmetic knows no better.
const SAME: f64 = 0.005;

/// The part that a search leaves free of a device whose memory it can only estimate: plans predict
/// to within that.
const RESERVE: u64 = 20;

/// What is needed, and what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Room {
    /// Bytes needed.
    pub needed: u64,
    /// Bytes that there are; unset where nothing was said.
    pub available: Option<u64>,
}

/// A plan that was made.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// What it was made of.
    pub choice: Choice,
    /// The step of the guide that it belongs to.
    pub step: Step,
    /// Of each device with memory of its own, less a reserve where that is an estimate; unset where
    /// it is the host's.
    pub device: Option<Room>,
    /// Of each machine's memory.
    pub host: Room,
    /// A step's time.
    pub time: StepTime,
}

impl Room {
    fn fits(&self) -> bool {
        self.available.is_none_or(|there| self.needed <= there)
    }

    /// How many times what there is is needed.
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
    /// A plan as it stands, for these machines.
    pub(super) fn new(
        choice: Choice,
        plan: &RunPlan,
        assumed: &Assumed,
        work: Work,
        speeds: Speeds,
    ) -> Self {
        let (host, info) = (assumed.machine(plan), &plan.device_info);
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
            step: Step::of(&choice),
            choice,
            device: (!info.shares_host_memory).then_some(device),
            host: Room {
                needed: host.needed(),
                available: host.available,
            },
            time: plan.step_time(work, speeds),
        }
    }

    /// Whether all that it needs is there.
    pub fn fits(&self) -> bool {
        self.device.is_none_or(|room| room.fits()) && self.host.fits()
    }

    /// How many times what there is is needed where it is scarcest.
    fn strain(&self) -> f64 {
        let device = self.device.map_or(0.0, |room| room.strain());
        device.max(self.host.strain())
    }

    /// The memory that does not suffice, in words.
    pub(super) fn lacks(&self) -> Option<String> {
        match self.device {
            Some(room) if !room.fits() => Some(format!("a device needs {room}")),
            _ if !self.host.fits() => Some(format!("the host needs {}", self.host)),
            _ => None,
        }
    }

    /// What makes one of two plans that are as fast the simpler one: an earlier step of the guide,
    /// then fewer bytes.
    fn simplicity(&self) -> impl Ord + use<> {
        let device = self.device.map_or(0, |room| room.needed);
        let moved = self.time.moved.total();
        (self.step, moved, self.host.needed, device)
    }
}

/// The fastest of those that fit; the one that lacks least where none does.
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

/// What would help where nothing fits.
pub(super) fn advice(nearest: &Tried, trains_all: bool) -> String {
    let lacks = nearest.lacks().unwrap_or_default();
    let way_out = if trains_all {
        "train an adapter on packed weights (--plugins nf4,lora)"
    } else {
        "shorten data.max_seq_len, pack more weights, or add ranks or memory"
    };
    format!("nothing fits; of what comes nearest, {lacks}: {way_out}")
}

#[cfg(test)]
mod tests;
