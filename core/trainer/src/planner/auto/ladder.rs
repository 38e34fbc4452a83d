//! Tried plans -> the best of each step of the guide.

use serde::Serialize;

use super::guide_stage::GuideStage;
use super::tried::{Tried, best};

/// A step and its best plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rung {
    /// The step.
    pub step: GuideStage,
    /// The fastest of its plans that fits, or the one with the smallest excess; `None` without
    /// plans.
    pub best: Option<Tried>,
}

/// All steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Ladder(pub Vec<Rung>);

impl Ladder {
    /// The best of each step.
    pub(super) fn of(tried: &[Tried]) -> Self {
        let rung = |step| Rung {
            step,
            best: best(tried.iter().filter(|one| one.step == step)).cloned(),
        };
        Ladder(GuideStage::ALL.map(rung).into())
    }
}
