//! The parts in which expressions over rows and runs are computed.

/// The parts in which rows and runs of elements are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Most elements of an operand in a part, or one row.
    pub elements: usize,
    /// Who computes parts side by side.
    pub threads: Threads,
}

/// The threads that compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// The library's: parts are computed one after the other.
    Library,
    /// The host's: several parts are computed at once, each by one thread. For a library whose
    /// functions of numbers run on one thread.
    Host,
}
