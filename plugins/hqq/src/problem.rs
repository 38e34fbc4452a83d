//! Common inputs of an encoding's steps: the weight, its groups and the solver's profile.

use espalier_interface::{ErrorCode, PluginError, Result, Services};

use crate::grouping::Grouping;
use crate::profile::Profile;

/// Elements that a thread takes at a time.
pub const SPAN: usize = 1 << 16;

/// A weight to be encoded.
#[derive(Clone, Copy)]
pub struct Problem<'a> {
    /// The flat weight, [n] f32, finite once [`crate::start::start`] passed it.
    pub weight: &'a [f32],
    /// Its groups.
    pub groups: Grouping,
    /// The largest code.
    pub top: f32,
    /// Which version of hqq to follow.
    pub profile: Profile,
    /// The host's threads.
    pub services: &'a dyn Services,
}

impl Problem<'_> {
    /// Groups that a thread takes at a time, a multiple of 64.
    pub fn stripe(&self) -> usize {
        (SPAN / self.groups.size).next_multiple_of(64)
    }

    /// The part of `numbers`, [count], that belongs to stripe `index`.
    pub fn stripe_of<'n>(&self, numbers: &'n [f32], index: usize) -> &'n [f32] {
        let first = index * self.stripe();
        &numbers[first..(first + self.stripe()).min(numbers.len())]
    }

    /// # Errors
    /// `CANCELLED` when the user stopped the run.
    pub fn heed_cancel(&self) -> Result<()> {
        if self.services.cancelled() {
            Err(PluginError::new(
                ErrorCode::CANCELLED,
                "encoding was cancelled",
            ))
        } else {
            Ok(())
        }
    }
}
