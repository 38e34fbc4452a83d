//! The error for a number that is not finite.

use espalier_registry::NOT_FINITE_NEXT_STEP;
use espalier_system::failure::{ExitClass, Failure};

/// A number that is not finite.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("step {step}: {tensor} is not finite{}", .reached.note())]
pub struct NotFinite {
    /// The optimizer step, counted from 1.
    pub step: u64,
    /// The first tensor in which it was seen.
    pub tensor: String,
    /// What it has reached.
    pub reached: Reached,
}

/// What a number that is not finite has reached when it is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// No param: it is seen before the step's update.
    NoParam,
    /// Params: the step has applied gradients in its backward pass.
    Params,
}

impl NotFinite {
    /// One that was seen before any update.
    pub fn unapplied(step: u64, tensor: String) -> Self {
        NotFinite {
            step,
            tensor,
            reached: Reached::NoParam,
        }
    }

    /// One that was seen after updates in the backward pass.
    pub fn applied(step: u64, tensor: String) -> Self {
        NotFinite {
            reached: Reached::Params,
            ..NotFinite::unapplied(step, tensor)
        }
    }
}

impl Reached {
    fn note(self) -> &'static str {
        match self {
            Reached::NoParam => "",
            Reached::Params => {
                ". Params were updated before it was seen (optim.in_backward), and none of them is saved: the last \
                 checkpoint is the state before"
            }
        }
    }
}

impl Failure for NotFinite {
    fn exit_class(&self) -> ExitClass {
        ExitClass::Numbers
    }

    fn next_step(&self) -> String {
        format!(
            "{NOT_FINITE_NEXT_STEP}, with another --out: --resume would come to the same number"
        )
    }
}
