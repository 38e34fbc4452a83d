//! The processes that run checks of a collective together.

/// The processes that run the checks together, where members are processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessGroup {
    /// Index of this process.
    pub own: u32,
    /// Number of processes.
    pub size: u32,
}

impl ProcessGroup {
    /// No other process.
    pub const ALONE: ProcessGroup = ProcessGroup { own: 0, size: 1 };
}
