//! The request of `host plan` in addition to a config.

use espalier_plan::plan::{Assumed, GivenSpeeds};

/// The inputs of a plan in addition to a config.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Asked {
    /// The machines.
    pub assumed: Assumed,
    /// Their speeds.
    pub speeds: GivenSpeeds,
    /// Whether the text shows the arithmetic and the kernel launches.
    pub explains: bool,
}
