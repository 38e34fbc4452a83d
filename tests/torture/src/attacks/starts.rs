//! Many simultaneous starts with one output directory: one runs, and the result is that of a single
//! run.

use crate::ended::{Ended, PATIENCE};
use crate::scenario::Scenario;
use crate::suite::{Attack, Try};

/// All uses.
pub struct Starts(Vec<Scenario>);

impl Starts {
    /// Makes every use once.
    pub fn prepare(_: u64) -> Result<Box<dyn Attack>, String> {
        Ok(Box::new(Starts(Scenario::of_all())))
    }
}

impl Attack for Starts {
    fn attempt(&self, a_try: &Try) {
        let mut random = a_try.random.clone();
        let of = random.of_all(&self.0);
        let (count, out) = (2 + random.below(7), a_try.name());
        let case = format!("{}: {count} starts at once", of.of.name);
        let ended: Vec<Ended> = std::thread::scope(|scope| {
            let start = || Ended::of(&mut of.command(&out, ""), PATIENCE);
            let running: Vec<_> = (0..count).map(|_| scope.spawn(start)).collect();
            running
                .into_iter()
                .map(|one| one.join().expect("it only waits"))
                .collect()
        });
        for one in &ended {
            one.as_documented(&case);
            let refused = one.code == Some(2);
            assert!(
                one.succeeded() || refused,
                "{case}: exit code {:?}: {}",
                one.code,
                one.last_line()
            );
        }
        let winners = ended.iter().filter(|one| one.succeeded()).count();
        assert_eq!(winners, 1, "{case}: winners");
        of.is_whole(&out, &case);
        of.recovers(&out, &case);
    }
}
