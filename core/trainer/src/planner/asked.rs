//! What `host plan` is asked for beside a config.

use espalier_plan::plan::{Assumed, GivenSpeeds};

/// What a plan is made for beside a config.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Asked {
    /// The machines.
    pub assumed: Assumed,
    /// How fast they are.
    pub speeds: GivenSpeeds,
    /// Whether the text shows the arithmetic.
    pub explains: bool,
}
