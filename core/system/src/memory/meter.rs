//! What one of several runs in a process holds, told from what the others do: they act one at a
//! time.

use super::resident_bytes;

/// The memory of a run: all of the program's, less what other runs have added to it.
///
/// Only what changes between [`Meter::enter`] and [`Meter::leave`] is the run's own. A process with
/// one run never has to enter or leave.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    /// Bytes that other runs hold.
    others: i64,
    /// Bytes of the run when it was left.
    left: i64,
    peak: u64,
}

impl Meter {
    /// All that the process holds is the run's.
    pub fn whole_process() -> Self {
        Meter {
            others: 0,
            left: 0,
            peak: 0,
        }
    }

    /// The run begins with `bare` bytes: those of the program and of what all runs share.
    pub fn beginning_with(bare: u64) -> Self {
        let mut meter = Meter {
            left: bare as i64,
            ..Meter::whole_process()
        };
        meter.enter();
        meter
    }

    /// From here on changes are the run's.
    pub fn enter(&mut self) {
        self.enter_at(resident_bytes());
    }

    /// From here on they are another's.
    pub fn leave(&mut self) {
        self.leave_at(resident_bytes());
    }

    /// Bytes that the run holds now.
    pub fn now(&self) -> u64 {
        self.own_of(resident_bytes()).max(0) as u64
    }

    /// Takes note of what the run holds now, and returns the most so far.
    pub fn peak(&mut self) -> u64 {
        self.peak = self.peak.max(self.now());
        self.peak
    }

    /// The most that was noted.
    pub fn most(&self) -> u64 {
        self.peak
    }

    fn enter_at(&mut self, resident: u64) {
        self.others = resident as i64 - self.left;
    }

    fn leave_at(&mut self, resident: u64) {
        self.left = self.own_of(resident);
    }

    /// The run's part of what the process holds.
    fn own_of(&self, resident: u64) -> i64 {
        resident as i64 - self.others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_take_between_two_actions_is_not_counted() {
        // 100 bytes of program, of which 30 are another run's by now.
        let mut meter = Meter {
            left: 70,
            ..Meter::whole_process()
        };
        meter.enter_at(100);
        assert_eq!(meter.own_of(150), 120);
        meter.leave_at(150);
        // Another takes 1000 bytes and gives 30 back.
        meter.enter_at(1120);
        assert_eq!(meter.own_of(1120), 120);
        assert_eq!(meter.own_of(1100), 100);
    }

    #[test]
    fn one_run_alone_holds_all_of_the_process() {
        assert_eq!(Meter::whole_process().own_of(100), 100);
        assert!(Meter::whole_process().peak() > 0);
    }
}
