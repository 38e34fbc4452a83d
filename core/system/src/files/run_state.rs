//! The content of an output directory.

/// The state of an output directory when it was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// No run, or one that ended before its first step and its first metric.
    Empty,
    /// A run that did not finish.
    Unfinished,
    /// A run with an `adapter` or `model` entry.
    Finished,
    /// A comparison, whose runs have their own directories inside.
    Comparison,
}
