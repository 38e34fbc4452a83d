//! An attack of the suite: how its references are made, and each try of it.

use std::sync::atomic::AtomicU64;

use crate::random::Random;

/// One try of an attack, which determines every event in it.
pub struct Try {
    /// Its number, from 0.
    pub number: u64,
    /// Its draws.
    pub random: Random,
    /// The requested place: reported by another try of that number.
    pub at: Option<u64>,
    /// The place of the fault, as a number that repeats it; 0 if the draws alone determine it.
    pub happened: AtomicU64,
}

impl Try {
    /// Try `number` of the attack `name` under `seed`.
    pub fn of(seed: u64, name: &str, number: u64, at: Option<u64>) -> Self {
        let happened = AtomicU64::new(0);
        Try {
            number,
            random: Random::of(seed, name, number),
            at,
            happened,
        }
    }

    /// A name that no other try has.
    pub fn name(&self) -> String {
        format!("try-{}", self.number)
    }
}

/// An attack once its references exist.
pub trait Attack: Sync {
    /// Number of tries; `None` if unlimited.
    fn tries(&self) -> Option<u64> {
        None
    }

    /// Makes one try. A panic is a failure with its message.
    fn attempt(&self, a_try: &Try);
}

/// An attack of the suite.
pub struct Entry {
    /// Its name for `--only`.
    pub name: &'static str,
    /// Tries per hour of the suite.
    pub an_hour: u64,
    /// Number of concurrent tries.
    pub at_once: usize,
    /// Whether it uses the time left after all attacks.
    pub fills: bool,
    /// Makes its references under a seed; an error gives the reason to skip it.
    pub prepare: Prepare,
}

/// Makes an attack's references under a seed; an error gives the reason to skip it.
pub type Prepare = fn(u64) -> Result<Box<dyn Attack>, String>;

impl Entry {
    /// An attack with two concurrent tries.
    pub const fn new(name: &'static str, an_hour: u64, prepare: Prepare) -> Self {
        Entry {
            name,
            an_hour,
            at_once: 2,
            fills: false,
            prepare,
        }
    }

    /// An attack whose tries disturb each other.
    pub const fn alone(name: &'static str, an_hour: u64, prepare: Prepare) -> Self {
        let at_once = 1;
        Entry {
            at_once,
            ..Entry::new(name, an_hour, prepare)
        }
    }

    /// An attack that also uses the time left after all others.
    pub const fn filling(name: &'static str, an_hour: u64, prepare: Prepare) -> Self {
        let fills = true;
        Entry {
            fills,
            ..Entry::new(name, an_hour, prepare)
        }
    }
}
