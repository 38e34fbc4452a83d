//! Memory of one of several runs in a process, which are active one at a time.

use super::resident_bytes;

/// The memory of a run: all memory of the process, less the additions of other runs.
///
/// Only changes between [`Meter::enter`] and [`Meter::leave`] count for the run. A process with a
/// single run needs neither call.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    /// Bytes that other runs hold.
    others: i64,
    /// Bytes of the run when it was left.
    left: i64,
    peak: u64,
}

impl Meter {
    /// All memory of the process counts for the run.
    pub fn whole_process() -> Self {
        Meter {
            others: 0,
            left: 0,
            peak: 0,
        }
    }

    /// The run starts with `bare` bytes: those of the program and of data shared by all runs.
    pub fn beginning_with(bare: u64) -> Self {
        let mut meter = Meter {
            left: bare as i64,
            ..Meter::whole_process()
        };
        meter.enter();
        meter
    }

    /// Changes from here on count for the run.
    pub fn enter(&mut self) {
        self.enter_at(resident_bytes());
    }

    /// Changes from here on count for other runs.
    pub fn leave(&mut self) {
        self.leave_at(resident_bytes());
    }

    /// Bytes that the run holds now.
    pub fn now(&self) -> u64 {
        self.own_of(resident_bytes()).max(0) as u64
    }

    /// Records the present bytes of the run, and returns its peak so far.
    pub fn peak(&mut self) -> u64 {
        self.peak = self.peak.max(self.now());
        self.peak
    }

    /// The recorded peak.
    pub fn most(&self) -> u64 {
        self.peak
    }

    fn enter_at(&mut self, resident: u64) {
        self.others = resident as i64 - self.left;
    }

    fn leave_at(&mut self, resident: u64) {
        self.left = self.own_of(resident);
    }

    /// The run's part of the process's memory.
    fn own_of(&self, resident: u64) -> i64 {
        resident as i64 - self.others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_other_runs_is_not_counted() {
        // 100 bytes of program, of which 30 now count for another run.
        let mut meter = Meter {
            left: 70,
            ..Meter::whole_process()
        };
        meter.enter_at(100);
        assert_eq!(meter.own_of(150), 120);
        meter.leave_at(150);
        // Another run allocates 1000 bytes and frees 30.
        meter.enter_at(1120);
        assert_eq!(meter.own_of(1120), 120);
        assert_eq!(meter.own_of(1100), 100);
    }

    #[test]
    fn a_single_run_holds_all_memory_of_the_process() {
        assert_eq!(Meter::whole_process().own_of(100), 100);
        assert!(Meter::whole_process().peak() > 0);
    }
}
