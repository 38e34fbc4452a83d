//! What an output directory holds.

/// What an output directory held when it was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// No run, or one that ended before it had done or measured anything.
    Empty,
    /// A run that did not come to its end.
    Unfinished,
    /// A run with an adapter or a model, or what is called so.
    Finished,
    /// A comparison of runs, which have directories of their own within.
    Comparison,
}
